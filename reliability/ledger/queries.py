"""Named SQL: every statement of this package lies in sql/, under a line `-- name --`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_INSTALLED = Path(__file__).resolve().parents[1] / "_sql"
_CHECKOUT = Path(__file__).resolve().parents[2] / "sql"


def sql_folder() -> Path:
    """Return the folder of the SQL: inside the package when installed from a wheel."""
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT


def split_queries(text: str) -> dict[str, str]:
    """Split a file of named statements; a name given twice is an error."""
    parts = _NAME.split(text)[1:]
    names, statements = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"a statement is named twice: {sorted(names)}")
    return {
        name: statement.strip().rstrip(";")
        for name, statement in zip(names, statements, strict=True)
    }


@cache
def queries() -> dict[str, str]:
    """Return every named statement, read once."""
    found: dict[str, str] = {}
    for path in sorted((sql_folder() / "queries").glob("*.sql")):
        statements = split_queries(path.read_text(encoding="utf-8"))
        if twice := found.keys() & statements.keys():
            raise ValueError(f"{path.name} names statements of another file: {sorted(twice)}")
        found.update(statements)
    return found
