"""From where a driver and its Python workers import: pyspark, and the pipeline's code."""

from __future__ import annotations

import os
from pathlib import Path

CODE = "RELIABILITY_CODE"  # the folder in which Airflow's task found the topology's module
ARCHIVE = Path("pyspark") / "python" / "lib" / "pyspark.zip"


def prefer_installed_pyspark(path: list[str]) -> None:
    """Take `…/pyspark/python/lib/pyspark.zip` off a module path that also has its `…`.

    spark-submit puts the archive first. Both hold the same files, but nothing can keep byte code
    beside an archive: every process would compile pyspark anew, most of a second. An archive of
    another installation stays, its version may differ.
    """
    for entry in [*path]:
        if entry.endswith(str(ARCHIVE)) and str(Path(entry).parents[3]) in path:
            path.remove(entry)


def find_code(path: list[str]) -> None:
    """Put the folder that RELIABILITY_CODE names last on a module path.

    Last, as Airflow does with a DAG folder: a DAG file that is called like a module of Python's own
    must not take its place, as it would from PYTHONPATH.
    """
    folder = os.environ.get(CODE)
    if folder and folder not in path:
        path.append(folder)
