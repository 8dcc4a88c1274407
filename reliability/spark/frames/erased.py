"""Whether a row is an erased person's: by a salted hash, as ErasedKeys decides (H12)."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.erasure import ErasedKeys
from reliability.deployment.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def is_erased(frame: DataFrame, column: str, name: str, erased: ErasedKeys) -> Column:
    """Say whether the value of a frame's column is that of an erased person; never NULL.

    :param name: what the column is called where it is erased
    """
    text = F.col(quoted(column)).cast("string")
    if name in erased.uuids:
        text = F.lower(F.regexp_replace(text, "[-{}]", ""))
    found = [
        F.sha2(F.concat(F.lit(salt), text), 256).isin(*sorted(hashes))
        for salt, hashes in erased.hashes[name].items()
    ]
    return F.coalesce(reduce(or_, found), F.lit(False))


def erased_in_columns(rows: DataFrame, erased: ErasedKeys) -> Column:
    """Say whether a row has an erased person in a column of that name; Spark ignores its case."""
    found = [
        is_erased(rows, column, name, erased)
        for name in erased.hashes
        for column, type_ in rows.dtypes
        if column.lower() == name.lower() and _has_one_text(type_)
    ]
    return reduce(or_, found, F.lit(False))


def _has_one_text(type_: str) -> bool:
    whole = type_.startswith("decimal(") and type_.endswith(",0)")
    return whole or type_ == "string" or type_ in _INTEGERS
