"""Which rows of a frame have a value that Postgres cannot store in their state.

Types that never fit are an error of the pipeline (`reliability.core.types.fits`). Here it is about
single values: NUL or bytes that are not UTF-8 in a text, a text that is no uuid or no JSON, a
number with too many digits, a day that Postgres does not have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.state import State
from reliability.core.types import (
    MAX_CHARACTERS_OF_A_NUMBER,
    UUID_FORM,
    base_type,
    digits_of,
    is_written_as_json,
    numeric_form,
    whole_digits,
)
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting_columns import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ESCAPED_NUL = r"(?<!\\)(?:\\\\)*\\u0000"
_BYTES = re.compile("[:<,]binary[,>]")
_SURROGATE = r"\\u[dD][89a-fA-F]"
# As strict as Postgres. Its numbers have at most 131,072 digits before the point and 16,383 after
# it: a literal of 6,384 characters with an exponent of four digits always fits.
_STRICT = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false", "maxNumLen": "6384"}
_LARGE_EXPONENT = r"\d[eE][+-]?0*[1-9]\d{4}"
_ESCAPED, _TEXT = r"\\.", '"[^"]*"'  # no loop of a group, which would nest with each character
_FIRST_DAY, _LAST_DAY = "-4713-11-24", "5874897-12-31"


def unstorable(frame: DataFrame, state: State) -> Column | None:
    """Say what a row has that its state cannot store; NULL if it can store all.

    :returns: None if the frame's types leave nothing to look at
    """
    types = dict(frame.dtypes)
    reasons = []
    for name, type_ in state.reads_as():
        is_wrong = is_unstorable(F.col(quoted(name)), types[name], type_) if name in types else None
        if is_wrong is not None:
            reasons.append(F.when(is_wrong, F.lit(f"column {name} is not a valid {type_}")))
    return F.coalesce(*reasons) if reasons else None


def is_unstorable(value: Column, spark: str, postgres: str) -> Column | None:
    """Say whether a value of a Spark type is none of a Postgres type; None if it always is one.

    The answer for NULL may be NULL.
    """
    base, is_array = base_type(postgres)
    if is_array:
        types = spark.removeprefix("array<").removesuffix(">"), postgres.removesuffix("[]")
        if is_unstorable(value, *types) is None:
            return None
        return F.exists(value, lambda each: or_false(is_unstorable(each, *types)))
    match base, spark:
        case "text" | "character varying", "string":
            return ~F.is_valid_utf8(value) | F.contains(value, F.lit("\0"))
        case "uuid", "string":
            return ~value.rlike(rf"\A(?:{UUID_FORM})\z")
        case "jsonb", "string":
            is_wrong = ~_is_json(value) | value.rlike(_ESCAPED_NUL) | _has_large_number(value)
            return value.isNotNull() & is_wrong
        case "jsonb", _ if is_written_as_json(spark, base):
            return ~all_is_utf8(value, spark) | F.to_json(value, JSON_OPTIONS).rlike(_ESCAPED_NUL)
        case "numeric", "string":
            has_form = value.rlike(rf"\A(?:{numeric_form(postgres)})\z")
            return ~has_form | (F.length(value) > MAX_CHARACTERS_OF_A_NUMBER)
        case "numeric", _:
            return _is_too_large(value, spark, postgres)
        case _, "date":
            return ~value.between(*(F.lit(day).cast("date") for day in (_FIRST_DAY, _LAST_DAY)))
        case _, "timestamp" | "timestamp_ntz":
            return value < F.lit(f"{_FIRST_DAY} 00:00:00").cast(spark)
    return None


def all_is_utf8(value: Column, spark: str) -> Column:
    """Say whether the texts in a struct, map or array are UTF-8; with bytes in it, nobody knows."""
    has_bytes = _BYTES.search(spark)
    return F.lit(True) if has_bytes else F.is_valid_utf8(value.cast("string"))


def or_false(is_wrong: Column | None) -> Column:
    """Return an answer of `is_unstorable` as a column that is never NULL."""
    return F.lit(False) if is_wrong is None else F.coalesce(is_wrong, F.lit(False))


def _is_json(value: Column) -> Column:
    """Say whether a text is one value of JSON.

    Spark reads one, and does not look at what follows. So the text is read twice, with other
    brackets around it: nothing but one value fits into both.
    """
    listed = F.concat(F.lit("["), value, F.lit("]"))
    nested = F.concat(F.lit('[{"v":'), value, F.lit("}]"))
    is_one = (
        F.from_json(listed, "array<string>", _STRICT).isNotNull()
        & F.from_json(nested, "array<struct<v:string>>", _STRICT).isNotNull()
    )
    # this reader does not see half a pair of surrogates
    return is_one & (~value.rlike(_SURROGATE) | F.try_parse_json(listed).isNotNull())


def _has_large_number(value: Column) -> Column:
    """Say whether a number outside the strings of a JSON text has an exponent of five digits."""
    outside = F.regexp_replace(F.regexp_replace(value, _ESCAPED, ""), _TEXT, '""')
    return value.rlike(_LARGE_EXPONENT) & outside.rlike(_LARGE_EXPONENT)


def _is_too_large(value: Column, spark: str, postgres: str) -> Column | None:
    """Compare a number with the least power of ten that has too many digits before the point."""
    most, digits = whole_digits(postgres), digits_of(spark)
    if most is None or digits is None or digits[0] <= most:
        return None
    power = f"decimal({most + 1},0)" if most >= 0 else f"decimal({-most},{-most})"
    exact = value if spark.startswith("decimal") else value.cast("decimal(20,0)")
    return F.abs(exact) >= F.lit(f"1e{most}").cast(power)
