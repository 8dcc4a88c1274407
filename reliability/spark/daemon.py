"""The parent of the Python workers: loads once, before it forks, what every staging task needs.

A fresh worker would import pyarrow, pandas and psycopg2 for each task slot anew: a second or
more of a small batch.
"""

from __future__ import annotations

import sys

from reliability.spark.imports import prefer_installed_pyspark

prefer_installed_pyspark(sys.path)

if __name__ == "__main__":
    import pandas  # noqa: F401
    import psycopg2  # noqa: F401
    import pyarrow.csv  # noqa: F401
    from pyspark import daemon

    import reliability.spark.stage  # noqa: F401

    daemon.manager()
