"""Exact sums in Spark: what fits is right, whatever lies on the way to it.

Spark adds bigints as bigints and decimals of 38 digits as decimals of 38 digits. It fails on the
first partial sum that is larger, and which one that is depends on the order of the rows. So each
number is cut in two, and both parts are added. These sums overflow after a billion rows of one key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reliability.core.column import Column, literal, quoted
from reliability.core.errors import SchemaMismatch
from reliability.core.fold import OWN
from reliability.core.types import MAX_DIGITS, digits_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HALF = 32  # bits of a bigint
#: digits in the lower part of a decimal: ten less than a sum may have
_LOWER = 28


def aggregates(columns: Sequence[Column], types: Mapping[str, str]) -> dict[str, str]:
    """Return name -> SQL over the rows of a key, from which `with_sums` makes a state's columns."""
    expressions: dict[str, str] = {}
    for column in columns:
        type_, value = types.get(column.sums), quoted(column.sums)
        if (scale := _scale_if_large(type_)) is not None:
            expressions |= _sums_of_parts(column.name, value, scale)
        elif type_ == "bigint":
            expressions[column.name] = _sum_of_bigints(value, column)
        else:
            expressions[column.name] = column.spark
    return expressions


def with_sums(reduced: DataFrame, columns: Sequence[Column], types: Mapping[str, str]) -> DataFrame:
    """Put the parts of large decimals together: texts, as they may have more digits than Spark has.

    Step by step: as one expression for each sum, they would take a second to compile.
    """
    scales = {c.name: _scale_if_large(types.get(c.sums)) for c in columns}
    large = {name: scale for name, scale in scales.items() if scale is not None}
    if not large:
        return reduced
    steps = [_text_of_parts(name, scale) for name, scale in large.items()]
    for made in zip(*steps, strict=True):
        reduced = reduced.selectExpr("*", *(f"{sql} AS {quoted(name)}" for name, sql in made))
    return reduced


def types_of_sums(columns: Sequence[Column], types: Mapping[str, str]) -> dict[str, str]:
    """Return the types of what is added in the columns that `with_sums` makes: those are texts.

    A sum has as many digits after the point as what is added.
    """
    return {
        c.name: types[c.sums] for c in columns if _scale_if_large(types.get(c.sums)) is not None
    }


def _scale_if_large(type_: str | None) -> int | None:
    """Return the scale of a decimal whose sums Spark cannot hold; None of any other type."""
    digits = digits_of(type_ or "")
    return digits[1] if digits and sum(digits) > _LOWER else None


def _sum_of_bigints(value: str, column: Column) -> str:
    """Return the sum, as a decimal unless Postgres has a bigint for it."""
    mask = (1 << _HALF) - 1
    low, high = f"sum({value} & {mask})", f"sum(shiftright({value}, {_HALF}))"
    total = f"(CAST({high} AS decimal(20,0)) * {1 << _HALF} + {low})"
    if column.type != "bigint":
        return total
    upper = f"({high} + shiftright({low}, {_HALF}))"
    why = (
        f"concat({literal(f'[{SchemaMismatch.code}] column {column.name}: ')}, {total},"
        " ', the sum of one key, is no bigint')"
    )
    return (
        f"CASE WHEN {upper} BETWEEN {-(1 << 31)} AND {(1 << 31) - 1}"
        f" THEN shiftleft({upper}, {_HALF}) | ({low} & {mask})"
        f" WHEN {upper} IS NOT NULL THEN CAST(raise_error({why}) AS bigint) END"
    )


def _unit(scale: int) -> str:
    """Return what the upper part of a decimal counts."""
    before, after = max(_LOWER - scale, 0) + 1, max(scale - _LOWER, 0)
    return f"CAST('1e{_LOWER - scale}' AS decimal({before + after},{after}))"


def _own(name: str, part: str) -> str:
    return f"{OWN}{part}_{name}"


def _sums_of_parts(name: str, value: str, scale: int) -> dict[str, str]:
    unit = _unit(scale)
    is_small = f"{value} BETWEEN -{unit} AND {unit}"
    return {
        _own(name, "low"): f"sum(if({is_small}, {value}, {value} % {unit}))",
        _own(name, "high"): f"coalesce(sum(if({is_small}, NULL, {value} div {unit})), 0)",
    }


def _text_of_parts(name: str, scale: int) -> list[tuple[str, str]]:
    """Return the steps to the text of a sum: a name, and an expression over the steps before.

    The sum is `upper` units and a rest that lies between 0 and a unit. Of a negative sum, the text
    has what is missing to 0. If the upper parts add up to 0, `low` is the sum and the rest is NULL.
    """
    unit, zero = _unit(scale), f"CAST(0 AS decimal({MAX_DIGITS},{scale}))"
    own = [_own(name, part) for part in ("low", "high", "upper", "units", "rest", "digits")]
    low, high, upper, units, rest, digits = map(quoted, own)
    remainder = f"if({upper} < 0, pmod(-{low}, {unit}), pmod({low}, {unit}))"
    lower = f"concat(repeat('0', {_LOWER}), replace({remainder}, '.', ''))"
    length = f"greatest(length({units}) + {_LOWER}, {scale + 1})"  # one digit before the point
    whole = f"left({digits}, length({digits}) - {scale})"
    text = f"concat({whole}, '.', right({digits}, {scale}))" if scale else digits
    signed = f"concat(if({upper} < 0, '-', ''), regexp_replace({text}, '^0+(?=[0-9])', ''))"
    return [
        (own[2], f"nullif({high}, 0) + {low} div {unit} - if({low} % {unit} < {zero}, 1, 0)"),
        (own[3], f"if({upper} < 0, -{upper} - if({low} % {unit} <> {zero}, 1, 0), {upper})"),
        (own[4], f"if({upper} IS NULL, NULL, right({lower}, {_LOWER}))"),
        (own[5], f"lpad(concat({units}, {rest}), {length}, '0')"),
        (name, f"if({high} = 0, CAST({low} AS string), {signed})"),
    ]
