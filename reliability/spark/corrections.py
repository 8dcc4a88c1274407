"""Rows of a batch that a person has corrected: the attempt reads them instead (V9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.aggregators.column import quoted
from reliability.core.errors import CorrectionStale
from reliability.core.fold import ACCOUNTING
from reliability.core.set_aside import MALFORMED, Correction
from reliability.spark.frames import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ID, _NAMES, _WAS, _BECOMES = "_corrected", "_names", "_was", "_becomes"


def with_corrections(frame: DataFrame, corrections: Sequence[Correction]) -> DataFrame:
    """Return a batch in which these rows have other values.

    :param frame: it has the columns `_x` and `_n`
    :raises CorrectionStale: a row is not there, or no longer has the values that were corrected
    """
    if not corrections:
        return frame
    from pyspark.sql import functions as F

    by_row = {one.xor: one for one in corrections}
    columns = [name for name in frame.columns if name not in (*ACCOUNTING, MALFORMED)]
    if unknown := {name for one in by_row.values() for name in one.names} - {*columns}:
        raise CorrectionStale(f"the batch has no columns {sorted(unknown)}, which were corrected")
    joined = _joined(frame, list(by_row.values()))
    _check(joined, columns, len(by_row))
    values = [_corrected(joined, name).alias(name) for name in columns]
    if MALFORMED in frame.columns:  # what is corrected is well-formed
        values.append(F.when(F.col(_ID).isNull(), F.col(MALFORMED)).alias(MALFORMED))
    return joined.select(*values, *ACCOUNTING)


def _joined(frame: DataFrame, corrections: Sequence[Correction]) -> DataFrame:
    from pyspark.sql import functions as F

    rows = [(c.xor, [*c.names], c.was, c.becomes) for c in corrections]
    schema = f"{_ID} bigint, {_NAMES} array<string>, {_WAS} string, {_BECOMES} string"
    changes = F.broadcast(frame.sparkSession.createDataFrame(rows, schema))
    return frame.join(changes, F.col("_x") == F.col(_ID), "left")


def _check(joined: DataFrame, columns: Sequence[str], expected: int) -> None:
    from pyspark.sql import functions as F

    found = joined.where(F.col(_ID).isNotNull())
    stale = [
        _is(found, name) & ~_value(found, name, _WAS).eqNullSafe(found[quoted(name)])
        for name in columns
    ]
    counted = found.select(F.greatest(F.lit(False), *stale).alias("is_stale"))
    row = counted.agg(
        F.count("*").alias("rows"), F.count_if(F.col("is_stale")).alias("stale")
    ).collect()[0]
    if row["rows"] != expected or row["stale"]:
        missing = expected - row["rows"]
        raise CorrectionStale(
            f"of {expected} corrected rows, {missing} are not in the batch any more, and "
            f"{row['stale']} no longer have the values that were corrected"
        )


def _corrected(joined: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.when(_is(joined, name), _value(joined, name, _BECOMES)).otherwise(joined[quoted(name)])


def _is(joined: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.array_contains(joined[_NAMES], name), F.lit(False))


def _value(joined: DataFrame, name: str, source: str) -> Column:
    """Return a column's value in the JSON, in the column's own type."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    schema = T.StructType([joined.schema[name]])
    parsed = F.from_json(joined[source], schema, JSON_OPTIONS | {"mode": "FAILFAST"})
    return parsed.getField(name)
