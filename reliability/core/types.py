"""The supported Postgres types of columns, and the Spark types that fit them or others exactly.

A type is written as Postgres writes it: `bigint`, `numeric(14,2)`, `timestamptz`, `text[]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from reliability.core.errors import InvalidDefinition

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FITTING: dict[str, tuple[str, ...]] = {
    "smallint": _INTEGERS[:2],
    "integer": _INTEGERS[:3],
    "bigint": _INTEGERS,
    "numeric": (),  # integers, and decimals by their scale
    "real": ("float",),
    "double precision": ("float", "double", *_INTEGERS[:3]),
    "text": ("string",),
    "character varying": ("string",),
    "date": ("date",),
    "timestamp with time zone": ("timestamp",),
    "timestamp without time zone": ("timestamp_ntz",),
    "boolean": ("boolean",),
    "uuid": ("string",),
    "jsonb": ("string",),  # and what Spark writes as JSON
    "bytea": ("binary",),
}
_SHORT = {
    "decimal": "numeric",
    "varchar": "character varying",
    "timestamptz": "timestamp with time zone",
    "timestamp": "timestamp without time zone",
}
MAX_DIGITS = 38  # of a decimal in Spark
_WITHOUT_ARRAYS = ("jsonb", "bytea")
_WRITTEN_AS_JSON = ("struct<", "map<", "array<")
# Of other keys of a map, such as dates, Spark writes into JSON how it stores them.
_NOT_A_JSON_KEY = re.compile(
    r"map<(?!(?:void|string|boolean|tinyint|smallint|int|bigint|decimal|float|double)\b)"
)
_TEXTS = ("text", "character varying")
_EXACT = ("bigint", "numeric")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPE = re.compile(r"([a-z ]+?) ?(?:\(([0-9]+)(?:, ?([0-9]+))?\))?(\[\])?")
_BARE_UUID = "(?:[0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}"
UUID_FORM = rf"{_BARE_UUID}|\{{{_BARE_UUID}\}}"
"""A regular expression of the texts of a uuid, for Python, Java and RE2, without anchors."""
MAX_CHARACTERS_OF_A_NUMBER = 16_383
"""The longest text of a numeric, which has at most so many digits after its point."""
VOID = "void"
"""The type of a column without any value."""
# A float has 24 bits for digits, a double 53. A date is its midnight.
_EXACT_IN: Mapping[str, frozenset[str]] = {
    "float": frozenset({"float", "tinyint", "smallint"}),
    "double": frozenset({"double", "tinyint", "smallint", "int", "float"}),
    "timestamp_ntz": frozenset({"timestamp_ntz", "date"}),
}
_WIDER: dict[str, tuple[str, ...]] = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric", "double precision"),
    "bigint": ("numeric",),
    "character varying": ("text",),
    "text": ("character varying",),
}


class _Type(NamedTuple):
    """A type in parts; `base` is empty if it is not supported."""

    base: str = ""
    precision: int | None = None
    scale: int | None = None
    is_array: bool = False


@lru_cache(1_000)
def _parse(postgres_type: str) -> _Type:
    match = _TYPE.fullmatch(postgres_type)
    if match is None:
        return _Type()
    base, precision, scale, brackets = match.groups()
    base = _SHORT.get(base, base)
    # COPY silently truncates values that are too long for timestamptz(3) or varchar(10).
    if base not in _FITTING or (precision and base != "numeric"):
        return _Type()
    if brackets and base in _WITHOUT_ARRAYS:
        return _Type()
    digits = int(precision) if precision else None
    return _Type(base, digits, None if digits is None else int(scale or 0), bool(brackets))


def is_supported(postgres_type: str) -> bool:
    """Say whether a column can have this type; arrays have one dimension.

    >>> is_supported("numeric(14,2)"), is_supported("bigint"), is_supported("int")
    (True, True, False)
    >>> is_supported("text[]"), is_supported("text[][]"), is_supported("timestamptz(3)")
    (True, False, False)
    """
    return bool(_parse(postgres_type).base)


def canonical(postgres_type: str) -> str:
    """Return a type as Postgres's catalogs write it; an unsupported type is returned unchanged.

    >>> canonical("decimal(14)"), canonical("timestamptz[]")
    ('numeric(14,0)', 'timestamp with time zone[]')
    """
    parsed = _parse(postgres_type)
    if not parsed.base:
        return postgres_type
    digits = "" if parsed.precision is None else f"({parsed.precision},{parsed.scale})"
    return parsed.base + digits + ("[]" if parsed.is_array else "")


def base_type(postgres_type: str) -> tuple[str, bool]:
    """Return a supported type without its digits, and whether it is an array of them.

    >>> base_type("numeric(14,2)[]"), base_type("timestamptz")
    (('numeric', True), ('timestamp with time zone', False))
    """
    parsed = _parse(postgres_type)
    return parsed.base, parsed.is_array


def fits(spark_type: str, postgres_type: str, *, is_carried: bool = False) -> bool:
    """Say whether every value of a Spark type is a value of the Postgres type.

    :param is_carried: Spark does not compare the values, so that numbers may be strings: Postgres
        has numbers with more digits than Spark, and NaN

    Postgres rejects too many digits before the point, as it rejects strings that are not a uuid or
    not JSON. It silently rounds digits after the point, so those are checked here.

    >>> fits("decimal(20,2)", "numeric(14,2)"), fits("decimal(20,4)", "numeric(14,2)")
    (True, False)
    >>> fits("double", "numeric(14,2)"), fits("int", "bigint"), fits("bigint", "integer")
    (False, True, False)
    >>> fits("array<int>", "bigint[]"), fits("map<string,int>", "jsonb"), fits("binary", "bytea")
    (True, True, True)
    >>> fits("string", "numeric"), fits("string", "numeric", is_carried=True)
    (False, True)
    >>> fits("map<date,int>", "jsonb"), fits("array<map<interval day,int>>", "jsonb")
    (False, False)
    """
    parsed = _parse(postgres_type)
    if parsed.is_array:
        element = spark_type.removeprefix("array<").removesuffix(">")
        return spark_type.startswith("array<") and fits(element, postgres_type.removesuffix("[]"))
    if parsed.base == "numeric" and (digits := digits_of(spark_type)):
        return parsed.scale is None or digits[1] <= parsed.scale
    if is_carried and spark_type == "string" and parsed.base == "numeric":
        return True
    fitting = _FITTING.get(parsed.base, ())
    if is_written_as_json(spark_type, postgres_type):
        return not _NOT_A_JSON_KEY.search(spark_type)
    return spark_type in fitting


def digits_of(spark_type: str) -> tuple[int, int] | None:
    """Return the digits before and behind the point of an exact number in Spark; None of others.

    >>> digits_of("decimal(10,2)"), digits_of("int"), digits_of("double")
    ((8, 2), (10, 0), None)
    """
    if match := _DECIMAL.fullmatch(spark_type):
        return int(match[1]) - int(match[2]), int(match[2])
    return (_DIGITS[spark_type], 0) if spark_type in _DIGITS else None


def numeric_form(postgres_type: str) -> str:
    """Return a regular expression of the texts that a numeric holds without rounding them.

    It is one for Python, Java and RE2, without anchors; RE2 cannot say how long a text may be.

    >>> is_one = lambda text, type_: bool(re.fullmatch(numeric_form(type_), text))
    >>> is_one("-12.50", "numeric(3,1)"), is_one("12.55", "numeric(3,1)"), is_one("1e3", "numeric")
    (True, False, False)
    >>> is_one("NaN", "numeric(3,1)"), is_one("-Infinity", "numeric(3,1)")
    (True, False)
    >>> is_one("0.0099", "numeric(2,4)"), is_one("0.01", "numeric(2,4)")
    (True, False)
    """
    parsed = _parse(postgres_type)
    if parsed.precision is None:
        return r"[+-]?[0-9]+(?:\.[0-9]+)?|NaN|[+-]?Infinity"
    scale = parsed.scale or 0
    whole = parsed.precision - scale
    before = f"0*[0-9]{{1,{whole}}}" if whole > 0 else "0+"
    zeros = max(-whole, 0)
    after = rf"0{{{zeros}}}[0-9]{{0,{scale - zeros}}}0*|0+" if zeros else rf"[0-9]{{0,{scale}}}0*"
    return rf"[+-]?{before}(?:\.(?:{after}))?|NaN"


def read_as(postgres_type: str) -> str:
    """Return the Spark type for reading a column's values; string where no type fits.

    >>> read_as("numeric(14,2)"), read_as("timestamptz"), read_as("jsonb"), read_as("bigint[]")
    ('decimal(14,2)', 'timestamp', 'string', 'string')
    >>> read_as("numeric"), read_as("numeric(2,5)"), read_as("numeric(40,2)")
    ('decimal(38,18)', 'decimal(5,5)', 'string')
    """
    parsed = _parse(postgres_type)
    if parsed.is_array or parsed.base in ("", "bytea", "uuid", "jsonb"):
        return "string"
    if parsed.base == "numeric":
        # For a plain numeric, Spark's 38 digits are split: 20 before the point, 18 after it.
        scale = 18 if parsed.scale is None else parsed.scale
        digits = max(parsed.precision or MAX_DIGITS, scale)
        return f"decimal({digits},{scale})" if digits <= MAX_DIGITS else "string"
    return {"double precision": "double"}.get(parsed.base, _FITTING[parsed.base][-1])


def as_spark_writes(types: Mapping[str, str]) -> dict[str, str]:
    """Return declared Spark types without needless blanks and in lower case.

    >>> as_spark_writes({"price": "DECIMAL(10, 2)", "name": "String"})
    {'price': 'decimal(10,2)', 'name': 'string'}
    """
    return {
        name: re.sub(r"\s*([(,)])\s*", r"\1", written.strip()).lower()
        for name, written in types.items()
    }


def check_read_as(declared: Mapping[str, str], columns: Mapping[str, str], what: str) -> None:
    """Raise InvalidDefinition unless these columns can be read in the types declared for them.

    :param declared: column -> Spark type
    :param columns: column -> Postgres type, of all columns
    :param what: what declares them
    """
    for name, spark in declared.items():
        if name not in columns:
            raise InvalidDefinition(f"{what}: types= names {name}, which is no column that is read")
        match = _DECIMAL.fullmatch(spark)
        is_decimal = match and int(match[2]) <= int(match[1]) <= MAX_DIGITS
        is_numeric = columns[name].startswith("numeric") and not columns[name].endswith("]")
        if spark != "string" and not (is_decimal and is_numeric):
            raise InvalidDefinition(
                f"{what}: column {name} is {columns[name]}, which cannot be read as {spark}",
                remedy="write string, or for a numeric decimal(p,s) of at most 38 digits.",
            )


def is_written_as_json(spark_type: str, postgres_type: str) -> bool:
    """Say whether Spark converts the value to JSON before writing it."""
    return postgres_type == "jsonb" and spark_type.startswith(_WRITTEN_AS_JSON)


def is_exact(postgres_type: str) -> bool:
    """Say whether a sum of this type is the same in any order: bigint and numeric (H3).

    Sums of floats are not: 0.3 + 1e16 − 1e16 is 0. A numeric may hold NaN, which no subtraction
    removes; but Spark's decimals have no NaN, so staged sums are exact.
    """
    parsed = _parse(postgres_type)
    return parsed.base in _EXACT and not parsed.is_array


def greatest_of(postgres_type: str) -> str | None:
    """Return the greatest number of an exact type, None if it has none.

    >>> greatest_of("bigint"), greatest_of("numeric(4,1)"), greatest_of("numeric(2)")
    ('9223372036854775807', '999.9', '99')
    >>> greatest_of("numeric(2,5)")
    '0.00099'
    >>> greatest_of("numeric")
    """
    parsed = _parse(postgres_type)
    if parsed.base == "bigint":
        return str(2**63 - 1)
    if parsed.precision is None:
        return None
    return f"{Decimal(10**parsed.precision - 1).scaleb(-(parsed.scale or 0)):f}"


def whole_digits(postgres_type: str) -> int | None:
    """Return how many digits a numeric has before its point, None if any number.

    >>> whole_digits("numeric(14,2)"), whole_digits("numeric(2,5)"), whole_digits("numeric")
    (12, -3, None)
    """
    parsed = _parse(postgres_type)
    return None if parsed.precision is None else parsed.precision - (parsed.scale or 0)


def is_ordered_alike(postgres_type: str) -> bool:
    """Say whether Spark and Postgres sort the values in the same order.

    Not uuid, jsonb and bytea, which have other types or none in Spark, and not arrays, where NULL
    elements come first in one and last in the other.

    >>> is_ordered_alike("text"), is_ordered_alike("boolean"), is_ordered_alike("uuid")
    (True, True, False)
    """
    parsed = _parse(postgres_type)
    return not parsed.is_array and parsed.base not in ("", "uuid", *_WITHOUT_ARRAYS)


def in_order(term: str, postgres_type: str) -> str:
    """Return a SQL term for comparisons: texts compare by their bytes, as in Spark.

    With the database's own collation, 'a' < 'B' could hold in one system and not in the other: the
    result would depend on how rows were cut into batches.
    """
    return f'{term} COLLATE "C"' if _parse(postgres_type).base in _TEXTS else term


def widens(old: str, new: str) -> bool:
    """Say whether a column can change from one type to the other and each value keep its text.

    A number may not get more digits after the point, and a real may not become a double precision:
    0.1 would become 0.10000000149011612, which is not what a replay of the same row would write.

    >>> widens("numeric(14,2)", "numeric(18,2)"), widens("numeric(14,2)", "numeric(18,4)")
    (True, False)
    >>> widens("bigint", "numeric"), widens("bigint", "numeric(10,0)"), widens("text", "bigint")
    (True, False, False)
    >>> widens("real", "double precision"), widens("numeric(4,2)", "numeric")
    (False, True)
    """
    one, other = _parse(old), _parse(new)
    if not one.base or one.is_array != other.is_array:
        return False
    if one.base == other.base == "numeric":
        return other.precision is None or (
            one.precision is not None
            and other.scale == one.scale
            and other.precision >= one.precision
        )
    return one.base == other.base or (
        other.base in _WIDER.get(one.base, ()) and other.precision is None
    )


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
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if (first := digits_of(one)) and (second := digits_of(other)):
        whole, scale = map(max, zip(first, second, strict=True))
        return f"decimal({whole + scale},{scale})" if whole + scale <= MAX_DIGITS else None
    both = {one, other}
    return next((wide for wide, narrow in _EXACT_IN.items() if both <= narrow), None)
