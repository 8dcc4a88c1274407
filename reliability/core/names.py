"""Names of topologies, states and columns: they stand in SQL and in table names."""

from __future__ import annotations

import re

from reliability.core.errors import InvalidDefinition

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST_NAME = 28  # <topology>__<state> must fit Postgres's 63 characters, with room for a suffix


def check_name(what: str, name: str) -> None:
    """Raise InvalidDefinition unless `name` is a name; `what` says whose it is."""
    # A leading or double underscore is ours: hidden columns, and <topology>__<state>.
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InvalidDefinition(
            f"{what}: {name!r} is not a name",
            remedy=f"use lower case, digits and single underscores, at most {LONGEST_NAME} long.",
        )
