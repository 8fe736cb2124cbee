# Versions that the scripts fetch. dpbeam/runners/matrix.py says what was tested; a test holds the two equal.
FLINK_VERSION=1.19.3       # PyPI: apache-flink-libraries
FLINK_MINOR=1.19           # artifact beam-runners-flink-<minor>
SPARK_VERSION=3.5.0        # PyPI: pyspark; the version that beam-runners-spark-3 is built against
DELTA_VERSION=3.2.0        # Maven: delta-spark, the newest that is built against that Spark
ICEBERG_VERSION=1.12.0     # Maven: iceberg-spark-runtime
RUNNER_VERSION=2.70.0      # Beam's Java runner libraries, from which the job servers are put together
JOB_SERVICE_VERSION=2.65.0 # beam-runners-java-job-service, the nearest version that can be fetched everywhere
PRISM_VERSION=$(sed -n 's/^BEAM = "\(.*\)"$/\1/p' "$REPO/dpbeam/runners/matrix.py") # Go module github.com/apache/beam/sdks/v2
SHADE_PLUGIN_VERSION=3.6.0 # maven-shade-plugin
SLF4J_VERSION=2.0.16
S3_VERSION=1.8.0           # Go module github.com/versity/versitygw
AZURITE_VERSION=3.37.0     # npm: azurite, a store that speaks the protocol of Azure Blob Storage
HADOOP_VERSION=3.4.1       # Maven: hadoop-hdfs, hadoop-common, hadoop-yarn-server-*
DEPENDENCY_PLUGIN_VERSION=3.8.1 # maven-dependency-plugin
SLF4J_1_VERSION=1.7.36     # slf4j-reload4j, for Hadoop
AIRFLOW_VERSION=3.3.2      # PyPI: apache-airflow-core; what goes with it: airflow.txt
DAGSTER_VERSION=1.13.29    # PyPI: dagster; dagster.txt
OPENDP_VERSION=0.16.0      # PyPI: opendp[polars]; opendp.txt
TUMULT_VERSION=0.21.0      # PyPI: tmlt.analytics; tumult.txt
