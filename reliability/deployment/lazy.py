"""Heavy packages, each imported when something of it is first used.

DAG files, the triggerer and the command line import this library, some of them where pyspark is not
installed. So no module may import these packages while it is imported itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reliability.core.errors import LibraryMissing

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.fs as fs
    import pyarrow.parquet as pq
    from psycopg2 import sql
    from pyspark import errors as spark_errors
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:

    class _Lazy:
        def __init__(self, package: str) -> None:
            self._package = package

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # a tool that looks at the object must not import anything
                raise AttributeError(name)
            value = getattr(import_module(self._package), name)
            setattr(self, name, value)  # from now on it is found without this method
            return value

    np = _Lazy("numpy")
    pa = _Lazy("pyarrow")
    pc = _Lazy("pyarrow.compute")
    fs = _Lazy("pyarrow.fs")
    pq = _Lazy("pyarrow.parquet")
    sql = _Lazy("psycopg2.sql")
    spark_errors = _Lazy("pyspark.errors")
    F = _Lazy("pyspark.sql.functions")
    T = _Lazy("pyspark.sql.types")

__all__ = ["F", "T", "fs", "library", "np", "pa", "pc", "pq", "spark_errors", "sql"]


def library(name: str, extra: str, spout: str) -> Any:
    """Import a package that only one kind of spout needs, and that others need not have.

    :raises LibraryMissing: it is not installed
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise LibraryMissing(
            f"{spout} needs the package {name.partition('.')[0]}, which is not installed here",
            remedy=f'pip install "airflow-provider-reliability[{extra}]"',
        ) from error
