# One image for Airflow, Spark and this package: driver and executors have the same Python.
ARG PYTHON_BASE_IMAGE=python:3.11-slim-bookworm

# ---- what both of the next stages install from, and how they reach an index (if not PyPI)
FROM ${PYTHON_BASE_IMAGE} AS lock
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_CACHE_DIR=/var/cache/pip
WORKDIR /build
COPY requirements.lock compose/select_locked.py ./
RUN python3 select_locked.py requirements.lock "airflow-provider-reliability (pyproject.toml)" > runtime.lock \
 && python3 select_locked.py requirements.lock hatchling > hatchling.lock

# ---- the locked packages
FROM lock AS packages
RUN python3 -m venv /opt/python
RUN --mount=type=cache,target=/var/cache/pip \
    /opt/python/bin/pip install --no-deps --require-hashes --requirement runtime.lock

# ---- this project as a wheel
FROM lock AS wheel
RUN --mount=type=cache,target=/var/cache/pip \
    pip install --no-deps --require-hashes --requirement hatchling.lock
COPY pyproject.toml README.md LICENSE ./
COPY reliability reliability
COPY plugins plugins
COPY sql sql
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

# ---- the image: no index, no credentials of one and no build tools get here
FROM ${PYTHON_BASE_IMAGE}
# 17 in Debian 12, 21 in Debian 13: Spark runs on both. Slim bases lack the folder of manual pages,
# into which some releases of the package want to link.
RUN apt-get update \
 && mkdir -p /usr/share/man/man1 \
 && apt-get install --yes --no-install-recommends default-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 50000 --gid 0 --create-home reliability \
 && install --directory --owner=50000 --group=0 /opt/airflow /opt/airflow/logs /opt/reliability
COPY --from=packages /opt/python /opt/python
ENV PATH=/opt/python/bin:$PATH \
    JAVA_HOME=/usr/lib/jvm/default-java \
    AIRFLOW_HOME=/opt/airflow \
    RELIABILITY_HOME=/opt/reliability \
    SPARK_CONF_DIR=/opt/reliability/compose/spark \
    PGSERVICEFILE=/run/secrets/pg_service \
    PGPASSFILE=/home/reliability/.pgpass \
    PYTHONPATH=/opt/reliability \
    PYTHONUNBUFFERED=1
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index /wheel/*.whl
WORKDIR /opt/reliability
COPY --chown=50000:0 data data
COPY --chown=50000:0 compose/entrypoint.sh compose/health.py compose/
COPY --chown=50000:0 compose/spark compose/spark
COPY --chown=50000:0 spark_apps spark_apps
COPY --chown=50000:0 dags dags
USER 50000
ENTRYPOINT ["/opt/reliability/compose/entrypoint.sh"]
CMD ["reliability", "--help"]
