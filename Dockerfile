# The image of dpbeam's workers and launcher.
#
#   docker build --tag dpbeam .
#   docker build --tag dpbeam-launcher --build-arg EXTRAS=budget .     # extras of pyproject.toml, separated by spaces
#   worker:    --environment_type=DOCKER --sdk_container_image=REGISTRY/dpbeam:TAG
#   launcher:  docker run --rm --entrypoint dpbeam REGISTRY/dpbeam:TAG select --help
#
# The entry point keeps the contract of Beam's SDK containers for Flink and Spark (dpbeam/runners/worker.py): the engine
# gives addresses as flags. Dataflow insists on Beam's own boot program and needs an image made from Beam's.

FROM python:3.11.7-slim-bookworm AS build
ARG EXTRAS=""
WORKDIR /src
RUN python -m venv /opt/dpbeam
COPY locks ./locks
# Exactly the locked files; nothing is built but dpbeam.
RUN set -- dpbeam $EXTRAS \
    && for name in "$@"; do set -- "$@" --requirement "locks/$name.txt"; shift; done \
    && /opt/dpbeam/bin/pip install --no-cache-dir --no-compile --no-deps --only-binary :all: --require-hashes "$@"
COPY pyproject.toml README.md LICENSE ./
COPY dpbeam ./dpbeam
RUN python -m venv /opt/builder \
    && /opt/builder/bin/pip install --no-cache-dir --require-hashes --requirement locks/build.txt \
    && /opt/builder/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels . \
    && /opt/dpbeam/bin/pip install --no-cache-dir --no-compile --no-deps wheels/dpbeam-*.whl \
    && /opt/dpbeam/bin/pip check \
    && /opt/dpbeam/bin/pip uninstall --yes pip setuptools
# Tests of libraries go. Bytecode comes: no worker could keep it, and would take three times as long to start.
RUN find /opt/dpbeam -depth \( -type d -name tests -o -name '*_test.py' \) -exec rm -r {} + \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/dpbeam

FROM python:3.11.7-slim-bookworm
RUN useradd --system --uid 10001 --create-home dpbeam \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(tests?|idlelib|lib2to3|site-packages)/' \
        /usr/local/lib/python3.11
COPY --from=build /opt/dpbeam /opt/dpbeam
ENV PATH=/opt/dpbeam/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /home/dpbeam
ENTRYPOINT ["dpbeam-worker"]
