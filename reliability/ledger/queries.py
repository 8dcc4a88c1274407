"""Named SQL: every statement of this package is in sql/, under a line `-- name --`.

A function of the ledger is called by its name too, with its parameters: `p_txid` is `txid`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
# What returns `record` is called with the columns that it is to have.
_FUNCTION = re.compile(
    r"^CREATE FUNCTION reliability\.(\w+)\(\s*(p_[^)]*?)\s*\)(?!\s*RETURNS SETOF record)",
    re.MULTILINE,
)
_INSTALLED = Path(__file__).resolve().parents[1] / "_sql"
_CHECKOUT = Path(__file__).resolve().parents[2] / "sql"


def sql_folder() -> Path:
    """Return the folder with the SQL; in an installed wheel, it is inside the package."""
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT


def split_queries(text: str) -> dict[str, str]:
    """Split a file of named statements; raise ValueError for a duplicate name."""
    parts = _NAME.split(text)[1:]
    names, statements = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"duplicate statement names: {sorted(names)}")
    return {
        name: statement.strip().rstrip(";")
        for name, statement in zip(names, statements, strict=True)
    }


def calls_of_functions(text: str) -> dict[str, str]:
    """Return the statement that calls each function which a migration creates.

    >>> calls_of_functions("CREATE FUNCTION reliability.seal(p_txid bigint, OUT rows bigint) …")
    {'seal': '-- in sql/migrations\\nSELECT * FROM reliability.seal(%(txid)s::bigint)'}
    """
    calls = {}
    for name, signature in _FUNCTION.findall(text):
        declared = [parameter.split(maxsplit=1) for parameter in signature.split(",")]
        values = [f"%({p.removeprefix('p_')})s::{type_}" for p, type_ in declared if p != "OUT"]
        calls[name] = f"-- in sql/migrations\nSELECT * FROM reliability.{name}({', '.join(values)})"
    return calls


@cache
def queries() -> dict[str, str]:
    """Return all named statements; they are read once."""
    named: dict[str, str] = {}
    for path in sorted((sql_folder() / "migrations").glob("*.sql")):
        named.update(calls_of_functions(path.read_text(encoding="utf-8")))
    for path in sorted((sql_folder() / "queries").glob("*.sql")):
        statements = split_queries(path.read_text(encoding="utf-8"))
        if twice := named.keys() & statements.keys():
            raise ValueError(
                f"{path.name} repeats statement names of another file: {sorted(twice)}"
            )
        named.update(statements)
    return named
