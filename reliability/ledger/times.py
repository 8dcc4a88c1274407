"""Times that Postgres has and Python has not: before the year 1, after 9999, without end."""

from __future__ import annotations

from typing import Any

from psycopg2.extensions import (
    PYDATE,
    PYDATETIME,
    PYDATETIMETZ,
    PYINTERVAL,
    new_array_type,
    new_type,
    register_type,
)

#: each with the type of its arrays
_TYPES = ((PYDATE, 1082, 1182), (PYDATETIME, 1114, 1115), (PYDATETIMETZ, 1184, 1185))
_INTERVAL = (PYINTERVAL, 1186, 1187)


def read_all_times(connection: Any) -> None:
    """Let a session return such a time as Postgres writes it: a row of a user's may have it."""
    for caster, oid, array in (*_TYPES, _INTERVAL):
        name = f"{caster.name} OR TEXT"
        reader = new_type((oid,), name, _or_text(caster))
        register_type(reader, connection)
        register_type(new_array_type((array,), f"{name}[]", reader), connection)


def _or_text(caster: Any) -> Any:
    def cast(text: str | None, cursor: Any) -> Any:
        if text is None or text.endswith("infinity"):
            return text
        try:
            return caster(text, cursor)
        except (ValueError, OverflowError):
            return text

    return cast
