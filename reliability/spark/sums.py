"""Exact sums in Spark: what fits is right, whatever lies on the way to it.

Spark adds bigints as bigints and decimals of 38 digits as decimals of 38 digits. It fails on the
first partial sum that is larger, and which one that is depends on the order of the rows. So each
number is cut in two, and both parts are added. These sums overflow after a billion rows of one key.
"""

from __future__ import annotations

import re

from reliability.core.aggregators.column import Column, quoted
from reliability.core.errors import SchemaMismatch
from reliability.core.types import MAX_DIGITS

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_HALF = 32  # bits of a bigint
#: digits in the lower part of a decimal: ten less than a sum may have
_LOWER = 28


def in_spark(column: Column, type_: str | None) -> str:
    """Return the SQL expression over the rows of a key that computes a column of a state.

    :param type_: of the column that it sums; None if it sums none
    """
    decimal = _DECIMAL.fullmatch(type_ or "")
    if decimal and int(decimal[1]) > _LOWER:
        return _sum_of_decimals(quoted(column.sums), int(decimal[2]))
    if type_ == "bigint":
        return _sum_of_bigints(quoted(column.sums), column)
    return column.spark


def _sum_of_bigints(value: str, column: Column) -> str:
    """Return the sum, as a decimal unless Postgres has a bigint for it."""
    mask = (1 << _HALF) - 1
    low, high = f"sum({value} & {mask})", f"sum(shiftright({value}, {_HALF}))"
    total = f"(CAST({high} AS decimal(20,0)) * {1 << _HALF} + {low})"
    if column.type != "bigint":
        return total
    upper = f"({high} + shiftright({low}, {_HALF}))"
    why = (
        f"concat('[{SchemaMismatch.code}] column {column.name}: ', {total},"
        " ', the sum of one key, is no bigint')"
    )
    return (
        f"CASE WHEN {upper} BETWEEN {-(1 << 31)} AND {(1 << 31) - 1}"
        f" THEN shiftleft({upper}, {_HALF}) | ({low} & {mask})"
        f" WHEN {upper} IS NOT NULL THEN CAST(raise_error({why}) AS bigint) END"
    )


def _sum_of_decimals(value: str, scale: int) -> str:
    """Return the sum as a text, because it may have more digits than any number in Spark.

    It is `upper` units and a rest that lies between 0 and a unit. Of a negative sum, the text has
    what is missing to 0.
    """
    digits = max(_LOWER - scale, 0) + 1, max(scale - _LOWER, 0)
    unit = f"CAST('1e{_LOWER - scale}' AS decimal({sum(digits)},{digits[1]}))"
    zero = f"CAST(0 AS decimal({MAX_DIGITS},{scale}))"  # of another type, it would lose digits
    is_small = f"{value} BETWEEN -{unit} AND {unit}"
    low = f"sum(if({is_small}, {value}, {value} % {unit}))"
    high = f"coalesce(sum(if({is_small}, NULL, {value} div {unit})), 0)"
    units, left = f"({high} + {low} div {unit})", f"({low} % {unit})"
    upper = f"({units} - if({left} < {zero}, 1, 0))"
    is_negative = f"{upper} < 0"
    written = f"if({is_negative}, -{upper} - if({left} <> {zero}, 1, 0), {upper})"
    rest = f"if({is_negative}, pmod(-{low}, {unit}), pmod({low}, {unit}))"
    lower = f"right(concat(repeat('0', {_LOWER}), replace({rest}, '.', '')), {_LOWER})"
    length = f"greatest(length({written}) + {_LOWER}, {scale + 1})"
    text = f"lpad(concat({written}, {lower}), {length}, '0')"
    point = f"concat(left({text}, {length} - {scale}), '.', right({text}, {scale}))"
    return (
        f"CASE WHEN {units} = 0 THEN CAST({left} AS string)"
        f" ELSE concat(if({is_negative}, '-', ''), {point if scale else text}) END"
    )
