"""Which types of Spark hold each value of other types exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reliability.spouts.parquet_columns import MAX_DIGITS

VOID = "void"
"""The type of a column without any value."""

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_INTEGERS = tuple(_DIGITS)
# A float has 24 bits for digits, a double 53. A date is its midnight.
_EXACT_IN: Mapping[str, frozenset[str]] = {
    "float": frozenset({"float", "tinyint", "smallint"}),
    "double": frozenset({"double", "tinyint", "smallint", "int", "float"}),
    "timestamp_ntz": frozenset({"timestamp_ntz", "date"}),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def common_type(one: str, other: str) -> str | None:
    """Return the narrowest type that holds each value of both exactly; None if there is none.

    A nested type has no other than itself.

    >>> common_type("int", "bigint"), common_type("decimal(8,2)", "decimal(8,4)")
    ('bigint', 'decimal(10,4)')
    >>> common_type("bigint", "double") is common_type("date", "timestamp") is None
    True
    """
    if one == other or other == VOID:
        return one
    if one == VOID:
        return other
    if one in _DIGITS and other in _DIGITS:
        return max(one, other, key=_INTEGERS.index)
    if _DECIMAL.fullmatch(one) or _DECIMAL.fullmatch(other):
        return _common_decimal(one, other)
    both = {one, other}
    return next((wide for wide, narrow in _EXACT_IN.items() if both <= narrow), None)


def _common_decimal(one: str, other: str) -> str | None:
    first, second = _digits(one), _digits(other)
    if first is None or second is None:
        return None
    whole, scale = max(first[0], second[0]), max(first[1], second[1])
    return f"decimal({whole + scale},{scale})" if whole + scale <= MAX_DIGITS else None


def _digits(type_: str) -> tuple[int, int] | None:
    """Return the digits before and after the point; None if it is not an exact number."""
    if match := _DECIMAL.fullmatch(type_):
        return int(match[1]) - int(match[2]), int(match[2])
    return (_DIGITS[type_], 0) if type_ in _DIGITS else None
