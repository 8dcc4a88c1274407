"""Make a frame of rows that go into the quarantine: what may be shown, and where each is from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.fold import OWN
from reliability.core.set_aside import MASKED
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting_columns import METADATA
from reliability.spark.frames.columns import field_called, selected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ITEM, ROW = f"{OWN}item", f"{OWN}row"


def quarantined_rows(rows: DataFrame, mask: Sequence[str]) -> DataFrame:
    """Return rows with masked values, with names that differ, and with where each is from.

    If the place were asked for later, that would change what is evaluated once (V5).
    """
    places = {ITEM: place_of(rows, "file_path"), ROW: place_of(rows, "row_index")}
    placed = rows.withColumns(places)
    for name in [mask] if isinstance(mask, str) else mask:
        placed = _masked(placed, name)
    placed = placed.toDF(*_different(placed.columns))
    times = [name for name, type_ in placed.dtypes if type_.startswith("time(")]
    # Spark cannot write a time of day as JSON
    return placed.withColumns({name: F.col(quoted(name)).cast("string") for name in times})


def place_of(rows: DataFrame, field: str) -> Column:
    """Return a field of Spark's metadata of a file's row; NULL if the row's file is not known."""
    place = F.col(f"{METADATA}.{field}")
    is_users = METADATA in {name.lower() for name in rows.columns}
    return F.lit(None).cast("string") if is_users or selected(rows, place) is None else place


def _masked(rows: DataFrame, name: str) -> DataFrame:
    column, path = field_called(rows, name)
    if path is None:
        return rows.withColumn(column, F.lit(MASKED))
    return rows.withColumn(column, F.col(quoted(column)).withField(path, F.lit(MASKED)))


def _different(names: Sequence[str]) -> list[str]:
    """Number the names that a join has doubled: JSON needs one for each column."""
    taken: dict[str, str] = {}
    for name in names:
        new, number = name, 1
        while new.lower() in taken:
            number += 1
            new = f"{name}_{number}"
        taken[new.lower()] = new
    return [*taken.values()]
