"""Texts as a database can hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# What somebody wrote as a reason must reach the ledger, in whatever characters.
PROSE = frozenset({"reason", "verdict_reason"})


def as_json(value: object) -> str:
    """Write plain data as JSON with the characters themselves.

    A database that is not in UTF-8 refuses JSON's escapes of characters.
    """
    return json.dumps(value, ensure_ascii=False)


def storable(text: str, encoding: str) -> str:
    """Write out what a database of this encoding cannot hold.

    :param encoding: as Postgres names it

    >>> storable("Zoë owes 5 €", "LATIN1"), storable("Zoë owes 5 €", "UTF8")
    ('Zoë owes 5 \\\\u20ac', 'Zoë owes 5 €')
    """
    codec = "latin-1" if encoding == "LATIN1" else "utf-8"
    return text.replace("\0", "\\0").encode(codec, "backslashreplace").decode(codec)


def with_storable_prose(parameters: Mapping[str, Any], encoding: str) -> Mapping[str, Any]:
    """Return the parameters of a statement, the reasons among them as they can be stored."""
    if PROSE.isdisjoint(parameters):
        return parameters
    return {
        name: storable(value, encoding) if name in PROSE and isinstance(value, str) else value
        for name, value in parameters.items()
    }
