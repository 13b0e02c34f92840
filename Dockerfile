# The operator, shard and leader pods run from the default target; Spark drivers and executors from `--target spark`.
#
#   docker build -t millrace .
#
# Behind a proxy that signs its own certificates, or with a package index of your own, add
#   --secret id=ca-certificates,src=/path/to/bundle.crt --secret id=pip-config,src=/path/to/pip.conf
# Neither leaves a trace in the image.

ARG BASE=python:3.11-slim-bookworm

# What changes seldom: a user without rights, and the locked dependencies.
FROM ${BASE} AS dependencies
RUN groupadd --gid 65532 millrace \
    && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin millrace
ENV PATH=/opt/millrace/bin:$PATH \
    PYTHONPATH=/opt/millrace/src \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
COPY dev/locks/operator.txt /opt/millrace/locks/operator.txt
# pip goes once it has done its work: nothing is ever installed into a running container.
RUN --mount=type=secret,id=ca-certificates,target=/run/secrets/ca.crt,mode=0444 \
    --mount=type=secret,id=pip-config,target=/run/secrets/pip.conf,mode=0444 \
    if [ -s /run/secrets/ca.crt ]; then export PIP_CERT=/run/secrets/ca.crt; fi \
    && if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi \
    && python3 -m venv /opt/millrace \
    && pip install --no-cache-dir --disable-pip-version-check --only-binary=:all: --require-hashes \
        --requirement /opt/millrace/locks/operator.txt \
    && printf '#!/opt/millrace/bin/python\nfrom millrace.cli import main\n\nmain()\n' > /opt/millrace/bin/millrace \
    && chmod 0755 /opt/millrace/bin/millrace \
    && pip uninstall --yes --quiet pip setuptools

FROM dependencies AS spark-dependencies
# The package of the JRE links manual pages into a folder that slim images lack.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
COPY dev/locks/spark.txt /opt/millrace/locks/spark.txt
RUN --mount=type=secret,id=ca-certificates,target=/run/secrets/ca.crt,mode=0444 \
    --mount=type=secret,id=pip-config,target=/run/secrets/pip.conf,mode=0444 \
    if [ -s /run/secrets/ca.crt ]; then export PIP_CERT=/run/secrets/ca.crt; fi \
    && if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi \
    && python3 -m ensurepip \
    && python3 -m pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        --requirement /opt/millrace/locks/spark.txt \
    && python3 -m pip uninstall --yes --quiet pip setuptools \
    && ln -s "$(python3 -c 'import pyspark; print(pyspark.__path__[0])')" /opt/spark
ENV SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/millrace/bin/python3 \
    PYSPARK_DRIVER_PYTHON=/opt/millrace/bin/python3

FROM spark-dependencies AS spark
COPY operator/millrace /opt/millrace/src/millrace
COPY spark-apps /opt/millrace/spark-apps
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/millrace/src
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["sh", "/opt/millrace/spark-apps/entrypoint.sh"]

# Last, so that it is what a plain `docker build` makes.
FROM dependencies AS operator
COPY operator/millrace /opt/millrace/src/millrace
# Compiled here because the file system of a running container is read-only.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/millrace/src
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["millrace"]
