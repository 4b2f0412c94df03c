# All processes of Slackwater in one image; the command selects one: `slackwater api`, `slackwater steward`, …
#   docker build -t slackwater .                                  api, steward, maintenance, notifier; a gpu-worker that attaches
#   docker build -t slackwater-engine --build-arg EXTRA=cpu .     with vLLM for CPU inside (gpu: for CUDA)
# PYTHON_IMAGE can name the base by its digest (docs/security.md).
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS build
ARG EXTRA=none
WORKDIR /opt/slackwater
COPY pyproject.toml README.md LICENSE ./
COPY deploy/install.sh deploy/missing_requirements.py deploy/build-plugin.sh deploy/
COPY deploy/locked deploy/locked
COPY app app
COPY workers workers
COPY migrations migrations
RUN ENGINE=${EXTRA} EXTRAS=otel,parquet,redis,s3,schemas deploy/install.sh
# What an initContainer puts on the PYTHONPATH of an engine in another image (docs/kubernetes.md).
RUN deploy/build-plugin.sh wheels \
    && .venv/bin/pip install --quiet --no-deps --target plugin wheels/*.whl \
    && rm -r wheels

FROM ${PYTHON_IMAGE}
# vLLM for CPU loads libnuma1. On CUDA, triton calls the compiler.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home slackwater \
    && install --directory --mode=0700 --owner=slackwater /data /data/keys /objects
COPY --from=build /opt/slackwater /opt/slackwater
ENV PATH=/opt/slackwater/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SLACKWATER_DATA_DIR=/data \
    SLACKWATER_HOST=0.0.0.0 \
    SLACKWATER_LOG_FORMAT=json
WORKDIR /data
USER slackwater
VOLUME /data
EXPOSE 8700
ENTRYPOINT []
CMD ["slackwater", "api"]
