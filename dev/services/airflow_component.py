"""Run an `airflow` command with the garbage collector out of the way of its imports.

Airflow builds some hundred thousand lasting objects while it starts. Looking through them
again and again, in vain, is a quarter of the API server's start-up time. And it warns at each start
that its simple login, which is meant here, is not for production.
"""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

LOGIN = "airflow.api_fastapi.auth.managers.simple.simple_auth_manager"
#: Objects made before the collector looks again; Python's own figure is 700.
THRESHOLD = 100_000


def main() -> None:
    gc.set_threshold(THRESHOLD, 20, 100)
    # Not by its level, which Airflow sets again.
    logging.getLogger(LOGIN).addFilter(lambda record: record.levelno > logging.WARNING)
    # Run as a file, Python would look for modules in dev/ before those of Airflow.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    sys.argv[0] = "airflow"
    from airflow.__main__ import main as airflow

    airflow()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
