"""Find columns of a frame as Spark does: it takes `TAGS` for `tags`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch
from reliability.deployment.lazy import T, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def selected(frame: DataFrame, *columns: Column | str) -> DataFrame | None:
    """Return these columns of a frame; None if Spark does not find one of them.

    Spark would log that as an error, with the whole plan.
    """
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        return frame.select(*columns)
    except spark_errors.AnalysisException:
        return None
    finally:
        logger.disabled = was_disabled


def column_called(frame: DataFrame, name: str) -> str:
    """Return the name of a frame's column, as the frame spells it.

    :raises SchemaMismatch: it has none of that name, or more than one
    """
    spelled = _called(frame.columns, name)
    if len(spelled) != 1:
        number = "no column" if not spelled else f"{len(spelled)} columns"
        raise _wrong(frame, f"{number} called {name!r}")
    return spelled[0]


def field_called(frame: DataFrame, name: str) -> tuple[str, str | None]:
    """Return the name of a column, and the path of a field in it, such as `email` of user.email.

    :raises SchemaMismatch: the frame has none of that name, or it is in an array or a map
    """
    if spelled := _called(frame.columns, name):
        return spelled[0], None
    top, _, rest = name.partition(".")
    column = column_called(frame, top) if rest else None
    path = column and _path(frame.schema[column].dataType, rest.split("."))
    if not column or not path:
        raise _wrong(frame, f"no column or field of a struct called {name!r}")
    return column, ".".join(map(quoted, path))


def _path(type_: DataType, names: list[str]) -> list[str]:
    """Return the names of fields, each within the one before, as a type spells them."""
    if not names or not isinstance(type_, T.StructType):
        return []
    spelled = _called(type_.names, names[0])
    rest = _path(type_[spelled[0]].dataType, names[1:]) if len(spelled) == 1 else []
    return [spelled[0], *rest] if spelled and len(rest) == len(names) - 1 else []


def _called(names: list[str], name: str) -> list[str]:
    return [spelled for spelled in names if spelled.lower() == name.lower()]


def _wrong(frame: DataFrame, what: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"the frame has {what}; its columns are {frame.columns}",
        remedy="correct the name in the process function.",
    )
