"""Where a driver and its Python workers import pyspark and the pipeline's code from."""

from __future__ import annotations

import os
from pathlib import Path

CODE = "RELIABILITY_CODE"  # the folder in which Airflow's task found the topology's module
PACKAGE = Path(__file__).resolve().parent
ARCHIVE = Path("pyspark") / "python" / "lib" / "pyspark.zip"


def prefer_installed_pyspark(path: list[str]) -> None:
    """Remove `…/pyspark/python/lib/pyspark.zip` from a module path that also has `…`.

    spark-submit puts the archive first. Both have the same files, but an archive has no byte code:
    every process would compile pyspark, which takes most of a second. The archive of another
    installation stays, as its version may differ.
    """
    for entry in [*path]:
        if entry.endswith(str(ARCHIVE)) and str(Path(entry).parents[3]) in path:
            path.remove(entry)


def drop_package_folder(path: list[str]) -> None:
    """Take the folder of this package off a module path.

    spark-submit runs `process_batch.py` as a file, so Python puts its folder first. A module of the
    pipeline that is called `session` or `values` would then be ours.
    """
    path[:] = [entry for entry in path if Path(entry).resolve() != PACKAGE]


def find_code(path: list[str]) -> None:
    """Append the folder that RELIABILITY_CODE names to a module path.

    Airflow too puts a DAG folder last. On PYTHONPATH, a DAG file with the name of a standard module
    would replace that module.
    """
    folder = os.environ.get(CODE)
    if folder and folder not in path:
        path.append(folder)
