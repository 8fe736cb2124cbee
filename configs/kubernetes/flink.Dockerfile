# Flink with Beam's runner on its class path; the same image is the job server beside the launcher.
#
#   scripts/flink fetch        # puts the job server together, in ~/.cache/dpbeam/jars
#   docker build --tag REGISTRY/dpbeam-flink:1.0.0 --file configs/kubernetes/flink.Dockerfile ~/.cache/dpbeam/jars
#
# Loaded by each job instead, Beam's classes would leak 27 MB of metaspace a job (docs/how-to/flink.md).
FROM flink:1.19.3-java17
COPY beam-flink-1.19-job-server-2.70.0.jar /opt/flink/lib/beam-job-server.jar
USER 9999
