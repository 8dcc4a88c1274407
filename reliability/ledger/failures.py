"""Translate driver errors into the errors of this package, by SQLSTATE, in one place."""

from __future__ import annotations

import re

import psycopg2
from psycopg2 import errors

from reliability.core.errors import (
    AlreadyAcked,
    AttemptFenced,
    LedgerBusy,
    LedgerCorruption,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    NotTheCoordinator,
    ReliabilityError,
    TextNotStorable,
    UnexpectedAnswer,
)

FENCED_SQLSTATE = "RL001"
CORRUPT_SQLSTATE = "RL002"
MIRROR_SQLSTATE = "RL003"
_MISSING = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)
# A missing schema or table of the user's does not mean that the ledger is not migrated.
_OF_THE_LEDGER = re.compile(r"\breliability(_contribution)?[.\"]")
_NO_TEXT = (errors.UntranslatableCharacter, errors.CharacterNotInRepertoire)
_PLACE_IN_COPY = re.compile(r"^COPY \w+, line \d+(, column \w+)?", re.MULTILINE)


def translate(error: psycopg2.Error) -> ReliabilityError:
    """Return the error of this package for a driver error."""
    text = described(error)
    if error.pgcode == FENCED_SQLSTATE:
        return AttemptFenced(text)
    if error.pgcode == CORRUPT_SQLSTATE:
        return LedgerCorruption(text)
    if error.pgcode == MIRROR_SQLSTATE:
        return NotTheCoordinator(text)
    if error.diag.constraint_name == "ack_once_per_partition":
        return AlreadyAcked(text)
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
        return LedgerBusy(text)
    if isinstance(error, _NO_TEXT):
        return TextNotStorable(text)
    if isinstance(error, _MISSING) and _OF_THE_LEDGER.search(text):
        return LedgerNotMigrated(f"the ledger lacks an object that this release needs: {text}")
    if isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError):
        return _unavailable(text)
    return UnexpectedAnswer(text)


def described(error: psycopg2.Error) -> str:
    """Return Postgres's message without the row that it is about.

    DETAIL and CONTEXT quote whole rows, which must not appear in logs or in the ledger. Only the
    line and column of a COPY and the key of a constraint are kept.
    """
    said = error.diag.message_primary
    if said is None:  # raised by libpq: there is no session
        return " ".join(str(error).split())
    detail = error.diag.message_detail or ""
    place = _PLACE_IN_COPY.search(error.diag.context or "")
    more = [detail if detail.startswith("Key ") else "", place[0] if place else ""]
    return "; ".join(filter(None, [said, *more]))


def _unavailable(text: str) -> ReliabilityError:
    # libpq reports a refused login without a SQLSTATE, because there is no session yet.
    if "password authentication failed" in text or "no password supplied" in text:
        return LedgerRefusedLogin(text)
    return LedgerUnavailable(text)
