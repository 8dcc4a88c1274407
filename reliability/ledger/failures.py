"""Translate what the driver raises into the errors of this package, by SQLSTATE, in one place."""

from __future__ import annotations

import re

import psycopg2
from psycopg2 import errors

from reliability.core.errors import (
    AlreadyAcked,
    AttemptFenced,
    LedgerBusy,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    ReliabilityError,
    UnexpectedAnswer,
)

FENCED_SQLSTATE = "RL001"
_MISSING = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)
# A missing schema or table of the user's own is not the ledger's.
_OF_THE_LEDGER = re.compile(r"\breliability(_contribution)?[.\"]")


def translate(error: psycopg2.Error) -> ReliabilityError:
    """Return the error of this package that a driver error means."""
    text = " ".join(str(error).split())
    if error.pgcode == FENCED_SQLSTATE:
        return AttemptFenced(text)
    if error.diag.constraint_name == "ack_once_per_partition":
        return AlreadyAcked(text)
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
        return LedgerBusy(text)
    if isinstance(error, _MISSING) and _OF_THE_LEDGER.search(text):
        return LedgerNotMigrated(f"the ledger lacks what this release needs: {text}")
    if isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError):
        return _unavailable(text)
    return UnexpectedAnswer(text)


def _unavailable(text: str) -> ReliabilityError:
    # libpq reports a refused login without a SQLSTATE, as it comes before the session.
    if "password authentication failed" in text or "no password supplied" in text:
        return LedgerRefusedLogin(text)
    return LedgerUnavailable(text)
