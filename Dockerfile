# The image of dpbeam's workers and launcher.
#
#   docker build --tag dpbeam .
#   worker:    --environment_type=DOCKER --sdk_container_image=REGISTRY/dpbeam:TAG
#   launcher:  docker run --rm --entrypoint dpbeam REGISTRY/dpbeam:TAG select --help
#
# The entry point keeps the contract of Beam's SDK containers for Flink and Spark (dpbeam/runners/worker.py): the engine
# gives addresses as flags. Dataflow insists on Beam's own boot program and needs an image made from Beam's.

FROM python:3.11.7-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/dpbeam
COPY scripts/_engines/constraints.txt pyproject.toml README.md LICENSE ./
COPY dpbeam ./dpbeam
RUN /opt/dpbeam/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt . \
    && /opt/dpbeam/bin/pip uninstall --yes pip

FROM python:3.11.7-slim-bookworm
RUN useradd --system --uid 10001 --create-home dpbeam
COPY --from=build /opt/dpbeam /opt/dpbeam
ENV PATH=/opt/dpbeam/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /home/dpbeam
ENTRYPOINT ["dpbeam-worker"]
