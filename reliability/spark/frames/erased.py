"""Whether a row is an erased person's: by a salted hash, as ErasedKeys decides (H12).

It is written as SQL, because a call for each of thousands of hashes would take seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reliability.core.column import literal, quoted
from reliability.core.erasure import ErasedKeys
from reliability.deployment.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def is_erased(columns: Iterable[tuple[str, str]], erased: ErasedKeys) -> Column:
    """Say whether a row has an erased person in one of these columns; never NULL.

    :param columns: a frame's columns, and what each is called where it is erased
    """
    found = [
        f"sha2(concat({literal(salt)}, {_text(column)}), 256)"
        f" IN ({', '.join(map(literal, sorted(hashes)))})"
        for column, name in columns
        for salt, hashes in erased.hashes[name].items()
    ]
    return F.expr(" OR ".join(f"coalesce({each}, false)" for each in found or ["false"]))


def _text(column: str) -> str:
    """Return what is compared. No `$` here: it also matches before a last newline."""
    text = f"CAST({quoted(column)} AS string)"
    digits = f"lower(translate({text}, '-{{}}', ''))"
    return f"IF(length({digits}) = 32 AND {digits} RLIKE '^[0-9a-f]{{32}}', {digits}, {text})"


def erased_columns(rows: DataFrame, erased: ErasedKeys) -> list[tuple[str, str]]:
    """Return the columns that are called as an erased one; Spark ignores the case of names."""
    return [
        (column, name)
        for name in erased.hashes
        for column, type_ in rows.dtypes
        if column.lower() == name.lower() and _has_one_text(type_)
    ]


def _has_one_text(type_: str) -> bool:
    whole = type_.startswith("decimal(") and type_.endswith(",0)")
    return whole or type_ == "string" or type_ in _INTEGERS
