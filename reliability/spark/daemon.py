"""The parent of the Python workers: loads once, before it forks, what every staging task needs.

A fresh worker would import pyarrow, pandas and psycopg2 for each task slot anew: a second or
more of a small batch.
"""

from __future__ import annotations

import sys
from importlib import import_module

from reliability.spark.imports import find_code, prefer_installed_pyspark
from reliability.spark.session import pin_zone

NEEDED = ("pandas", "psycopg2", "pyarrow.csv", "reliability.spark.stage")


def run() -> None:
    """Load what is needed, then be pyspark's own daemon; in the time zone of the driver (V7)."""
    pin_zone()
    prefer_installed_pyspark(sys.path)
    find_code(sys.path)
    for module in NEEDED:
        import_module(module)
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    run()
