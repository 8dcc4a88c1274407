"""Which Spark types fit a Postgres column without losing anything on the way."""

from __future__ import annotations

import re

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FITTING: dict[str, tuple[str, ...]] = {
    "smallint": _INTEGERS[:2],
    "integer": _INTEGERS[:3],
    "bigint": _INTEGERS,
    "real": ("float",),
    "double precision": ("float", "double", *_INTEGERS[:3]),
    "text": ("string",),
    "character varying": ("string",),
    "varchar": ("string",),
    "date": ("date",),
    "timestamptz": ("timestamp",),
    "timestamp with time zone": ("timestamp",),
    "timestamp": ("timestamp_ntz",),
    "boolean": ("boolean",),
}
_NUMERIC = ("numeric", "decimal")
_PARAMETERS = re.compile(r"^([a-z ]+?) ?(?:\((\d+)(?:, ?(\d+))?\))?$")


def is_supported(postgres_type: str) -> bool:
    """Say whether a column can have this type.

    >>> is_supported("numeric(14,2)"), is_supported("bigint"), is_supported("int")
    (True, True, False)
    """
    match = _PARAMETERS.match(postgres_type)
    return match is not None and match[1] in (*_FITTING, *_NUMERIC)


def fits(spark_type: str, postgres_type: str) -> bool:
    """Say whether every value of a Spark type is a value of the Postgres type.

    Too many digits before the point are left to Postgres, which refuses them; digits after it
    would be rounded away without a word.

    >>> fits("decimal(20,2)", "numeric(14,2)"), fits("decimal(20,4)", "numeric(14,2)")
    (True, False)
    >>> fits("double", "numeric(14,2)"), fits("int", "bigint"), fits("bigint", "integer")
    (False, True, False)
    """
    match = _PARAMETERS.match(postgres_type)
    base, precision, scale = match.groups() if match else (postgres_type, None, None)
    if base in _NUMERIC:
        return _fits_numeric(spark_type, precision, scale)
    return spark_type in _FITTING.get(base, ())


def _fits_numeric(spark_type: str, precision: str | None, scale: str | None) -> bool:
    if spark_type in _INTEGERS:
        return True
    if not spark_type.startswith("decimal("):
        return False
    spark_scale = int(spark_type.rstrip(")").split(",")[1])
    return precision is None or spark_scale <= int(scale or 0)
