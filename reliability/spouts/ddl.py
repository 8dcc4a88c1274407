"""The columns of a spout's `schema=`, read without Spark, to compare them with a file's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reliability.core.column import quoted
from reliability.core.errors import InvalidDefinition

_SAME = (
    "boolean tinyint smallint int bigint float double date timestamp timestamp_ntz string binary"
)
_TYPES = dict(zip(_SAME.split(), _SAME.split(), strict=True)) | {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_QUOTED = r"`((?:[^`]|``)+)`"
_COLUMN = re.compile(rf"\s*(?:{_QUOTED}|(\w+))(?:\s*:\s*|\s+)(\S(?:.*\S)?)\s*", re.S)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.I)
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.I | re.S)
_CLOSING = {"(": ")", "<": ">"}


def ddl_of(columns: Iterable[tuple[str, str]]) -> str:
    """Write columns in Spark's DDL.

    >>> ddl_of([("id", "bigint"), ("a b", "date")])
    '`id` bigint, `a b` date'
    """
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns)


def read_ddl(schema: str) -> tuple[tuple[str, str], ...] | None:
    """Return the columns of a schema in Spark's DDL; None if it needs Spark to be read.

    A type that needs Spark, such as `char(3)`, is empty.

    >>> read_ddl("id long, `a b` dec(4), tags array<struct<a: int, B long>>")
    (('id', 'bigint'), ('a b', 'decimal(4,0)'), ('tags', 'array<struct<a:int,B:bigint>>'))
    >>> read_ddl("`it's ``1``` int")
    (("it's `1`", 'int'),)
    >>> read_ddl("id bigint COMMENT 'x, y'") is None
    True
    """
    if re.search("['\"]", re.sub(_QUOTED, "", schema)):
        return None
    columns = [_COLUMN.fullmatch(part) for part in _split(schema)]
    if not all(columns):
        return None
    found = (match for match in columns if match)
    return tuple(((m[1] or m[2]).replace("``", "`"), _type(m[3])) for m in found)


def check_types(who: str, schema: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of a schema; raise InvalidDefinition if a type needs Spark to be read.

    :param who: what needs the types, in the error's text
    """
    columns = read_ddl(schema)
    unclear = ", ".join(name for name, type_ in columns or () if not type_)
    if columns is None or unclear:
        raise InvalidDefinition(
            f"{who} cannot tell the types of the schema{unclear and f': {unclear}'}",
            remedy="write names and types alone, such as id bigint, price decimal(14,2), tags "
            "array<string>: no comments, no NOT NULL, as any column may be NULL, and string in "
            "place of char and varchar.",
        )
    return columns


def _split(schema: str) -> list[str]:
    """Split at the commas between columns."""
    parts, depth, is_quoted = [""], 0, False
    for character in schema:
        is_quoted ^= character == "`"
        if not is_quoted:
            depth += (character in _CLOSING) - (character in _CLOSING.values())
        if character == "," and not depth and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _type(text: str) -> str:
    if match := _DECIMAL.fullmatch(text):
        return f"decimal({match[1] or 10},{match[2] or 0})"
    if match := _NESTED.fullmatch(text):
        return _nested(match[1].lower(), match[2])
    return _TYPES.get(text.lower(), "")


def _nested(kind: str, inside: str) -> str:
    if kind == "struct":
        fields = read_ddl(inside) or (("", ""),)
        types = [f"{name}:{type_}" if type_ else "" for name, type_ in fields]
    else:
        types = [_type(part.strip()) for part in _split(inside)]
    return f"{kind}<{','.join(types)}>" if all(types) else ""
