"""Run an `airflow` command with the garbage collector out of the way of its imports.

Airflow builds some hundred thousand lasting objects while it starts. Looking through them
again and again, in vain, is a quarter of the API server's start-up time.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

#: Objects made before the collector looks again; Python's own figure is 700.
THRESHOLD = 100_000


def main() -> None:
    gc.set_threshold(THRESHOLD, 20, 100)
    # Run as a file, Python would look for modules in dev/ before those of Airflow.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    sys.argv[0] = "airflow"
    from airflow.__main__ import main as airflow

    airflow()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
