"""The parent of the Python workers: it imports once, before it forks, what staging tasks need.

Otherwise each worker would import pyarrow, pandas and psycopg2 itself, which takes a second or more
of a small batch.
"""

from __future__ import annotations

import sys
from importlib import import_module

from reliability.spark.imports import find_code, prefer_installed_pyspark
from reliability.spark.session import pin_zone

NEEDED = ("pandas", "pgpq", "psycopg2", "pyarrow.compute", "reliability.spark.stage")


def run() -> None:
    """Import the modules and run pyspark's own daemon, in the driver's time zone (V7)."""
    pin_zone()
    prefer_installed_pyspark(sys.path)
    find_code(sys.path)
    for module in NEEDED:
        import_module(module)
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    run()
