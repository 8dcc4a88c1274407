r"""Convert values of CSV and JSON to their columns' types; a value that would change is an error.

Spark's readers change values silently: they round decimals, cut digits after the microsecond and
text after a date, and read 1e999 as Infinity, the tinyint 128 as -128, and 12:00 as that hour of
today. So Spark reads every value as a string, and this module converts it. An error names the
column and the value, and fails the attempt.

| type | valid strings |
|---|---|
| integers | `-12` |
| decimal | `1.50`, `15e-1`; only zeros beyond its scale |
| float, double | the same, rounded to the nearest; `NaN`, `Inf`, `-Infinity` |
| boolean | `true`, `FALSE` |
| date | `2024-02-29`; midnight may follow |
| timestamp | `2024-02-29 12:00:00.123456+01:00`, also with `T`; without an offset it is UTC |
| timestamp_ntz | the same without an offset |
| binary | base64 in JSON, the string's bytes in CSV |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING

from reliability.core.column import quoted
from reliability.core.errors import SchemaMismatch
from reliability.deployment.lazy import F, T

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

MAX_CHARACTERS_IN_ERROR = 60
MAX_FLOAT = 3.4028234663852886e38
# Java's regular expressions; each number has a digit before or after its point.
_INTEGER = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?(?=\.?[0-9])[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_EXPONENT = r"\A[+-]?(?=\.?[0-9])([0-9]*)\.?([0-9]*)[eE]([+-]?[0-9]{1,9})\z"
_NOT_FINITE = r"NaN|[+-]?Inf(?:inity)?"
_DATE = r"[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_MIDNIGHT = r"(?:[ T]00:00(?::00(?:\.0+)?)?)?"
_TIME = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{0,6}0*)?)?"
_OFFSET = r"(?: ?(?:Z|UTC|GMT|[+-][0-9]{1,2}(?::?[0-9]{2}(?::?[0-9]{2})?)?))?"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"  # in fours
_MESSAGE = re.compile(
    rf"\[{SchemaMismatch.code}\] (.*?)(?:\.? What to do: (.*)| SQLSTATE: \w+)?$", re.M
)


def as_text(schema: StructType) -> StructType:
    """Return a schema with the same columns and fields, in which every value is a string.

    :raises SchemaMismatch: a type that cannot be read from text
    """
    result = _as_text(schema, "")
    assert isinstance(result, T.StructType)
    return result


def _as_text(type_: DataType, place: str) -> DataType:
    match type_:
        case T.StructType():
            inner = f"{place}." if place else ""
            return T.StructType(
                [T.StructField(f.name, _as_text(f.dataType, inner + f.name)) for f in type_]
            )
        case T.ArrayType():
            return T.ArrayType(_as_text(type_.elementType, f"{place}[]"))
        case T.StringType():
            return type_
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType() | T.DecimalType():
            return T.StringType()
        case T.FloatType() | T.DoubleType() | T.BooleanType() | T.BinaryType():
            return T.StringType()
        case T.DateType() | T.TimestampType() | T.TimestampNTZType():
            return T.StringType()
    raise SchemaMismatch(
        f"column {place}: {type_.simpleString()} cannot be read from a text file",
        remedy="read it as a string, and convert it in the process function.",
    )


def as_typed(frame: DataFrame, schema: StructType, *, is_base64: bool) -> DataFrame:
    """Convert a frame that was read by `as_text(schema)`, as `typed`; other columns stay."""
    columns = {}
    for f in schema:
        text = frame[quoted(f.name)]
        value = typed(text, f.dataType, is_base64=is_base64)
        why = misfit(text, value, f.dataType, f.name, shown=True)
        refusal = F.raise_error(F.concat(F.lit(f"[{SchemaMismatch.code}] "), why))
        columns[f.name] = F.when(why.isNull(), value).otherwise(refusal)
    return frame.withColumns(columns)


def typed(text: Column, type_: DataType, *, is_base64: bool) -> Column:
    """Convert what was read by `as_text` to its type; a value that would change becomes NULL.

    :param is_base64: binary values are base64, not the string's bytes
    """
    match type_:
        case T.StructType():
            fields = [
                typed(text.getField(f.name), f.dataType, is_base64=is_base64).alias(f.name)
                for f in type_
            ]
            return F.when(text.isNotNull(), F.struct(*fields))
        case T.ArrayType(elementType=inner):
            return F.transform(text, lambda each: typed(each, inner, is_base64=is_base64))
        case T.StringType():
            return text
    return _value(F.when(_fits(text, type_, is_base64), text), type_, is_base64)


def misfit(text: Column, value: Column, type_: DataType, place: str, *, shown: bool) -> Column:
    """Say which value of `text` did not fit its type; NULL if all did.

    :param value: what `typed` has made of the text
    :param place: the column, for the message
    :param shown: the message shows the value
    """

    def within(t: Column, v: Column, inner: DataType, name: str) -> Column:
        return misfit(t, v, inner, f"{place}{name}", shown=shown)

    match type_:
        case T.StructType():
            each = [(text.getField(f.name), value.getField(f.name), f) for f in type_]
            fields = [within(t, v, f.dataType, f".{f.name}") for t, v, f in each]
            return F.coalesce(*fields, F.lit(None).cast("string"))
        case T.ArrayType(elementType=inner):
            misfits = F.zip_with(text, value, lambda t, v: within(t, v, inner, "[]"))
            return F.get(F.array_compact(misfits), 0)
        case T.StringType():
            return F.lit(None).cast("string")
    return F.when(text.isNotNull() & value.isNull(), _message(text, type_, place, shown))


def _value(text: Column, type_: DataType, is_base64: bool) -> Column:
    """Convert a string of the right form; NULL if it is not a value of the type, as 2024-02-30."""
    if isinstance(type_, T.BinaryType) and is_base64:
        return F.unbase64(text)
    value = text.try_cast(type_)
    if isinstance(type_, T.FloatType | T.DoubleType):
        is_infinite = F.abs(value) == float("inf")
        is_written = F.when(is_infinite, _is(text, _NOT_FINITE)).otherwise(
            (value != 0) | ~text.rlike(r"\A[^eE]*[1-9]")  # 1e-999 is not 0
        )
        return F.when(is_written, value)
    return value


def _fits(text: Column, type_: DataType, is_base64: bool) -> Column:
    """Say whether a string has the form of the type, without digits that the type would lose."""
    match type_:
        case T.DecimalType():
            plain = rf"[+-]?(?=\.?[0-9])[0-9]*(?:\.[0-9]{{0,{type_.scale}}}0*)?"
            return _is(text, plain) | (_scale_of_exponent(text) <= type_.scale)
        case T.FloatType() | T.DoubleType():
            return _is(text, f"{_NUMBER}|{_NOT_FINITE}")
        case T.BooleanType():
            return _is(text, "true|false")
        case T.DateType():
            return _is(text, _DATE + _MIDNIGHT)
        case T.TimestampType():
            return _is(text, f"{_DATE}(?:[ T]{_TIME}{_OFFSET})?")
        case T.TimestampNTZType():
            return _is(text, f"{_DATE}(?:[ T]{_TIME})?")
        case T.BinaryType() if is_base64:
            return _is(text, _BASE64) & (F.length(text) % 4 == 0)
        case T.BinaryType():
            return F.lit(True)
        case _:
            return _is(text, _INTEGER)


def _is(text: Column, form: str) -> Column:
    return text.rlike(rf"(?i)\A(?:{form})\z")


def _scale_of_exponent(text: Column) -> Column:
    """Return the scale of a number such as 1.50e-3; NULL if it has no exponent."""
    whole, fraction, exponent = (F.regexp_extract(text, _EXPONENT, n) for n in (1, 2, 3))
    digits = F.regexp_replace(F.concat(whole, fraction), "0+$", "")
    decimals = F.length(fraction) - (F.length(whole) + F.length(fraction) - F.length(digits))
    scale = F.when(F.length(digits) == 0, F.lit(0)).otherwise(decimals - exponent.try_cast("int"))
    return F.when(text.rlike(_EXPONENT), scale)


def _message(text: Column, type_: DataType, place: str, shown: bool) -> Column:
    after = f"is not a valid {type_.simpleString()}"
    if not shown:
        return F.lit(f"column {place} {after}")
    start = F.substring(text, 1, MAX_CHARACTERS_IN_ERROR)
    value = F.regexp_replace(start, r"\p{Cntrl}", "?")
    after += ", or does not fit it without losing digits"
    return F.concat(F.lit(f"column {place}: '"), value, F.lit(f"' {after}"))


def check_value(place: str, value: object, type_: DataType) -> None:
    """Raise SchemaMismatch if pyspark or Arrow would silently change a Python value.

    They themselves refuse any other value of a wrong type.
    """
    match type_, value:
        case T.ArrayType(), list() | tuple():
            for element in value:
                check_value(f"{place}[]", element, type_.elementType)
        case T.StructType(), dict():
            for field in type_:
                check_value(f"{place}.{field.name}", value.get(field.name), field.dataType)
    if _would_change(value, type_):
        raise SchemaMismatch(
            f"column {place}: {value!r} is not a valid {type_.simpleString()}",
            remedy="correct the value, or its column in the spout's schema.",
        )


def _would_change(value: object, type_: DataType) -> bool:
    match type_, value:
        case T.IntegralType(), Real() | Decimal():
            return bool(value // 1 != value)
        case ((T.DateType() | T.TimestampType() | T.TimestampNTZType()), Real() | Decimal()):
            return True  # Arrow takes a number for a time since 1970
        case T.FractionalType(), bool():
            return True
        case T.DecimalType(), Decimal() if value.is_finite():
            digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
            return value != 0 and len(digits) - value.adjusted() - 1 > type_.scale
        case T.FloatType(), float():
            return MAX_FLOAT < abs(value) < float("inf")
        case T.DateType(), datetime():
            return True
        case T.TimestampNTZType(), datetime():
            return value.tzinfo is not None
        case T.StringType(), bytes() | bytearray():
            return True
    return False


@contextmanager
def translate_value_errors() -> Iterator[None]:
    """Raise SchemaMismatch if a Spark job failed because a value does not fit its column.

    >>> raised = "SchemaMismatch: [SCHEMA_MISMATCH] the file has no header. What to do: mend it."
    >>> with translate_value_errors():
    ...     raise RuntimeError(raised)
    Traceback (most recent call last):
    reliability.core.errors.SchemaMismatch: [SCHEMA_MISMATCH] the file has no header. \
What to do: mend it.
    """
    try:
        yield
    except SchemaMismatch:
        raise
    except Exception as error:
        if message := _MESSAGE.search(str(error)):
            told, usual = message[2], SchemaMismatch("").what_to_do
            remedy = "correct the value at the source, or widen its column in the schema."
            if told not in (None, usual):
                remedy = told
            raise SchemaMismatch(message[1], remedy=remedy) from error
        raise
