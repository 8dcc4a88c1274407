"""Exit with 0 if a service is healthy: `python3 health.py scheduler`.

Airflow's API server is asked for all of Airflow, and Spark's master for its workers: starting
the airflow command for that, as its own check does, costs seconds of a core each time.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import urllib.request
from typing import Any

AIRFLOW = "http://airflow-apiserver:8080/api/v2/monitor/health"
SPARK = "http://spark-master:8080/json/"
#: A proxy of the environment must not be asked for a neighbour.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_healthy(service: str) -> bool:
    """Say whether a service works; a component of Airflow goes by its name in the report."""
    if service == "spark-master":
        return bool(_get(SPARK)["status"] == "ALIVE")
    if service == "spark-worker":
        return bool(_get(SPARK)["aliveworkers"] > 0)
    if service == "celery-worker":
        return _answers()
    return bool(_get(AIRFLOW)[service]["status"] == "healthy")


def _answers() -> bool:
    """Say whether this container's Celery worker answers through the broker."""
    from celery import Celery

    command = shlex.split(os.environ["AIRFLOW__CELERY__BROKER_URL_CMD"])
    broker = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    name = f"celery@{socket.gethostname()}"
    return bool(Celery(broker=broker).control.ping([name], timeout=3))


def _get(url: str) -> Any:
    with OPENER.open(url, timeout=5) as response:
        return json.load(response)


if __name__ == "__main__":
    sys.exit(not is_healthy(sys.argv[1]))
