"""Names of topologies, states and columns, which stand in SQL and in table names; and our own."""

from __future__ import annotations

import re

from reliability.core.errors import InvalidDefinition

#: What pip installs this package as; the name `reliability` is another project's there.
DISTRIBUTION = "airflow-provider-reliability"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST_NAME = 28  # <topology>__<state> must fit Postgres's 63 characters, with room for a suffix


def check_name(what: str, name: str) -> None:
    """Raise InvalidDefinition unless `name` is valid; `what` says what it names."""
    # A leading or double underscore is reserved for hidden columns and for <topology>__<state>.
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InvalidDefinition(
            f"{what}: {name!r} is not a valid name",
            remedy="use lower case, digits and single underscores, at most "
            f"{LONGEST_NAME} characters.",
        )
