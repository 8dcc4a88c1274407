#!/bin/sh
# Copy what a program wants private or writable: a mounted secret keeps its mode on the host,
# libpq ignores a pass file that others may read, and Airflow opens its passwords for writing.
set -eu
umask 077
cp /run/secrets/pgpass "$PGPASSFILE"
if [ -f /run/secrets/airflow_passwords ]; then
  cp /run/secrets/airflow_passwords "$AIRFLOW_HOME/passwords.json"
fi
exec "$@"
