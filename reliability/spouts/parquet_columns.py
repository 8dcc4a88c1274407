"""The columns of a Parquet file as Spark 4.3 reads them, from the footer and without Spark.

A file is refused at emission only for what makes the Spark job fail for sure. tests/integration/
test_parquet_types.py compares each type here with Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reliability.core.fold import reserved
from reliability.core.types import MAX_DIGITS, VOID
from reliability.deployment.lazy import pa, pq

Columns = tuple[tuple[str, str], ...]
"""Names and types in the file's order, as Spark writes them: `struct<a:int,b:array<string>>`.

The type of a column that has no type, because no row has a value, is `void`.
"""
EMPTY = "int"  # the type that Spark has for such a column

_ROW_INDEX = "_tmp_metadata_row_index"  # a name of Spark's own
_PLAIN = {
    "BOOLEAN": "boolean",
    "INT32": "int",
    "INT64": "bigint",
    "INT96": "timestamp",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BYTE_ARRAY": "binary",
    "FIXED_LEN_BYTE_ARRAY": "binary",
}
_ANNOTATED = {"String": "string", "Enum": "string", "JSON": "string", "Date": "date"}
_INTEGERS = {
    (8, True): "tinyint",
    (8, False): "smallint",
    (16, True): "smallint",
    (16, False): "int",
    (32, True): "int",
    (32, False): "bigint",
    (64, True): "bigint",
    (64, False): "decimal(20,0)",
}
_WRITE_MICROSECONDS = (
    'write it in microseconds: pandas.to_parquet(…, coerce_timestamps="us", '
    "allow_truncated_timestamps=True)"
)
_WRITE_OTHERWISE = {
    "Time": "write the time of day as a string or an integer",
    "Interval": "write the interval as a string or as numbers",
    "Float16": "write it as a float: frame.astype({column: 'float32'}) in pandas",
    "UUID": "write the uuid as a string",
    "Decimal": f"write it with at most {MAX_DIGITS} digits",
}


def columns_of(footer: pq.FileMetaData) -> Columns:
    """Return the columns of a file with Spark's types."""
    leaves = iter(_leaves(footer))
    columns = [(f, _type(f.type, leaves)) for f in footer.schema.to_arrow_schema()]
    return tuple((f.name, VOID if pa.types.is_null(f.type) else type_) for f, type_ in columns)


def in_spark(columns: Iterable[tuple[str, str]]) -> Columns:
    """Return columns with the types that Spark has for them: an int for one without any value."""
    return tuple((name, EMPTY if type_ == VOID else type_) for name, type_ in columns)


def why_unreadable(footer: pq.FileMetaData) -> tuple[str, str] | None:
    """Return what makes Spark fail on each such file and what to do, None if there is nothing."""
    names = [field.name for field in footer.schema.to_arrow_schema()]
    if not names:
        return "it has no columns", "write it with columns"
    if why := why_unusable(names):
        return why
    if alike := [*_alike_below(footer.schema.to_arrow_schema())]:
        return f"Spark does not tell its fields {alike} apart", "rename all but one of them"
    for leaf in _leaves(footer):
        if remedy := _remedy(leaf):
            return f"column {leaf.path} is {written_type(leaf)}, which Spark does not read", remedy
    return None


def why_unusable(names: Sequence[str]) -> tuple[str, str] | None:
    """Return which names of columns the library or Spark cannot have and what to do, or None."""
    if taken := reserved(names):
        what = f"it has columns of its own called {taken}, which the library adds"
        return what, "rename them"
    if taken := [name for name in names if name.lower() == _ROW_INDEX]:
        what = f"it has a column called {taken[0]}, into which Spark writes the rows' numbers"
        return what, "rename it"
    if alike := _alike(names):
        return f"Spark does not tell its columns {alike} apart", "rename all but one of them"
    return None


def _alike(names: Sequence[str]) -> list[str]:
    """Return the names that differ only in case."""
    times = Counter(name.lower() for name in names)
    return [name for name in names if times[name.lower()] > 1]


def _alike_below(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield the fields of structs that Spark does not tell apart, as `column.field`."""
    for field in fields:
        type_, path = field.type, f"{above}{field.name}"
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        if pa.types.is_nested(type_):
            inner = [type_.field(number) for number in range(type_.num_fields)]
            yield from (f"{path}.{name}" for name in _alike([each.name for each in inner]))
            yield from _alike_below(inner, f"{path}.")


def difference(
    one: Columns, other: Columns, first: str, second: str, *, in_order: bool = False
) -> str:
    """Say where the columns of two files, or of a file and a schema, differ; empty if nowhere.

    An empty type is unknown and differs from none.

    :param first: what `one` is called in the text
    :param in_order: the order of the columns counts too
    """
    types, others = dict(one), dict(other)
    differences = [
        f"column {name} is {type_} in {first}, and {others[name]} in {second}"
        for name, type_ in one
        if name in others and type_ and others[name] and others[name] != type_
    ]
    differences += _missing(types, others, first, second) + _missing(others, types, second, first)
    if in_order and not differences and [name for name, _ in one] != [name for name, _ in other]:
        differences = [f"the columns of {first} and of {second} are not in the same order"]
    return "; ".join(differences)


def written_type(leaf: Any) -> str:
    """Return a leaf's type as Parquet's tools write it, `INT64 TIMESTAMP(NANOS)`."""
    logical = _logical(leaf)
    match logical:
        case {"Type": "Timestamp" | "Time" as type_, "timeUnit": unit}:
            annotation = f"{type_.upper()}({unit[:-7].upper()}S)"
        case {"Type": "Decimal", "precision": precision, "scale": scale}:
            annotation = f"DECIMAL({precision},{scale})"
        case {"Type": "None"}:
            annotation = ""
        case _:
            annotation = str(logical["Type"]).upper()
    return f"{leaf.physical_type} {annotation}".strip()


def _missing(
    types: Mapping[str, str], others: Mapping[str, str], first: str, second: str
) -> list[str]:
    lower = {name.lower(): name for name in others}
    missing = [name for name in types if name not in others]
    differences = [
        f"column {name} in {first} is {lower[name.lower()]} in {second}"
        for name in missing
        if name.lower() in lower
    ]
    if names := [name for name in missing if name.lower() not in lower]:
        columns = f"column {names[0]}" if len(names) == 1 else f"columns {', '.join(names)}"
        written = ", ".join(types[name] for name in names if types[name])
        differences.append(
            f"{second} has no {columns}, which {first} has{written and f' as {written}'}"
        )
    return differences


def _type(type_: pa.DataType, leaves: Iterator[Any]) -> str:
    """Return Spark's type.

    :param leaves: the file's leaves from the first one of this type on; its own are taken
    """
    if isinstance(type_, pa.BaseExtensionType):
        return _type(type_.storage_type, leaves)
    if pa.types.is_map(type_):
        return f"map<{_type(type_.key_type, leaves)},{_type(type_.item_type, leaves)}>"
    if pa.types.is_struct(type_):
        fields = (f"{field.name}:{_type(field.type, leaves)}" for field in type_)
        return f"struct<{','.join(fields)}>"
    if pa.types.is_nested(type_):
        return f"array<{_type(type_.value_type, leaves)}>"
    return _spark_type(next(leaves))


def _leaves(footer: pq.FileMetaData) -> Sequence[Any]:
    return [footer.schema.column(number) for number in range(footer.num_columns)]


def _logical(leaf: Any) -> Any:
    return json.loads(leaf.logical_type.to_json())


def _spark_type(leaf: Any) -> str:
    logical = _logical(leaf)
    match logical:
        case {"Type": "Int", "bitWidth": bits, "isSigned": is_signed}:
            return _INTEGERS[bits, is_signed]
        case {"Type": "Decimal", "precision": precision, "scale": scale}:
            return f"decimal({precision},{scale})"
        case {"Type": "Timestamp", "isAdjustedToUTC": is_utc}:
            return "timestamp" if is_utc else "timestamp_ntz"
        case {"Type": "None" | "Null"}:
            return _PLAIN[leaf.physical_type]
    return _ANNOTATED.get(logical["Type"], written_type(leaf))


def _remedy(leaf: Any) -> str:
    """Return what to write instead of a type that Spark refuses; empty if Spark reads it."""
    logical = _logical(leaf)
    match logical:
        case {"Type": "Timestamp", "timeUnit": "nanoseconds"}:
            return _WRITE_MICROSECONDS
        case {"Type": "Decimal", "precision": precision} if precision <= MAX_DIGITS:
            return ""
    return _WRITE_OTHERWISE.get(logical["Type"], "")
