"""Which rows of a frame have a value that Postgres cannot store in their state.

Types that never fit are an error of the pipeline (`reliability.core.types.fits`). Here it is about
single values: NUL or bytes that are not UTF-8 in a text, a text that is no uuid or no JSON, a
number with too many digits, a day that Postgres does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.state import State
from reliability.core.types import base_type, is_written_as_json, numeric_form, whole_digits
from reliability.spark.frames import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BARE_UUID = "[0-9a-fA-F]{4}(?:-?[0-9a-fA-F]{4}){7}"
UUID = rf"(?:{_BARE_UUID}|\{{{_BARE_UUID}\}})"
_ESCAPED_NUL = r"(?<!\\)(?:\\\\)*\\u0000"
_SURROGATE = r"\\u[dD][89a-fA-F]"
# As strict as Postgres; it sets no bound to a number's length that a file would reach.
_STRICT = {
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
    "maxNumLen": "131072",
}
_FIRST_DAY, _LAST_DAY = "-4713-11-24", "5874897-12-31"
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def misfits(frame: DataFrame, state: State) -> Column | None:
    """Say what a row has that its state cannot store; NULL if it can store all.

    :returns: None if the frame's types leave nothing to look at
    """
    from pyspark.sql import functions as F

    found = [
        F.when(is_wrong, F.lit(f"column {name} is not a valid {type_}"))
        for name, type_ in state.reads_as()
        if name in frame.columns
        for is_wrong in _wrong(F.col(quoted(name)), dict(frame.dtypes)[name], type_)
    ]
    return F.coalesce(*found) if found else None


def _wrong(value: Column, spark: str, postgres: str) -> Iterator[Column]:
    from pyspark.sql import functions as F

    base, is_array = base_type(postgres)
    if is_array:
        element = spark.removeprefix("array<").removesuffix(">")
        if any(True for _ in _wrong(value, element, postgres.removesuffix("[]"))):
            yield F.exists(
                value,
                lambda each: reduce(
                    lambda one, other: one | other,
                    (
                        F.coalesce(is_wrong, F.lit(False))
                        for is_wrong in _wrong(each, element, postgres.removesuffix("[]"))
                    ),
                ),
            )
    elif spark == "string" and base in ("text", "character varying"):
        yield ~F.is_valid_utf8(value) | F.contains(value, F.lit("\0"))
    elif spark == "string" and base == "uuid":
        yield ~value.rlike(rf"\A{UUID}\z")
    elif spark == "string" and base == "jsonb":
        yield value.isNotNull() & (~_is_json(value) | value.rlike(_ESCAPED_NUL))
    elif is_written_as_json(spark, base):
        yield F.to_json(value, JSON_OPTIONS).rlike(_ESCAPED_NUL)
    elif base == "numeric" and spark == "string":
        yield ~value.rlike(rf"\A(?:{numeric_form(postgres)})\z")
    elif base == "numeric":
        yield from _too_large(value, spark, postgres)
    elif spark == "date":
        yield ~value.between(*(F.lit(day).cast("date") for day in (_FIRST_DAY, _LAST_DAY)))
    elif spark in ("timestamp", "timestamp_ntz"):
        yield value < F.lit(f"{_FIRST_DAY} 00:00:00").cast(spark)


def _is_json(value: Column) -> Column:
    """Say whether a text is one value of JSON.

    Spark reads one, and does not look at what follows. So the text is read twice, with other
    brackets around it: nothing but one value fits into both.
    """
    from pyspark.sql import functions as F

    listed = F.concat(F.lit("["), value, F.lit("]"))
    nested = F.concat(F.lit('[{"v":'), value, F.lit("}]"))
    is_one = (
        F.from_json(listed, "array<string>", _STRICT).isNotNull()
        & F.from_json(nested, "array<struct<v:string>>", _STRICT).isNotNull()
    )
    # this reader does not see half a pair of surrogates
    return is_one & (~value.rlike(_SURROGATE) | F.try_parse_json(listed).isNotNull())


def _too_large(value: Column, spark: str, postgres: str) -> Iterator[Column]:
    """Compare a number with the least power of ten that has too many digits before the point."""
    from pyspark.sql import functions as F

    most = whole_digits(postgres)
    if most is None or _whole_digits_of(spark) <= most:
        return
    power = f"decimal({most + 1},0)" if most >= 0 else f"decimal({-most},{-most})"
    exact = value.cast("decimal(20,0)") if spark in _DIGITS else value
    yield F.abs(exact) >= F.lit(f"1e{most}").cast(power)


def _whole_digits_of(spark: str) -> int:
    match = _DECIMAL.fullmatch(spark)
    return int(match[1]) - int(match[2]) if match else _DIGITS.get(spark, 0)
