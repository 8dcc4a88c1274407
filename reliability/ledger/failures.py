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
    LedgerFull,
    LedgerNotMigrated,
    LedgerRefusedLogin,
    LedgerUnavailable,
    NotTheCoordinator,
    ReliabilityError,
    RightMissing,
    TextNotStorable,
    TopologyUnknown,
    UnexpectedAnswer,
)
from reliability.core.remedy import Remedy
from reliability.core.sqlstate import QUALIFY, Kind, kind_of, lacks_schema, remedy_of

_STAGED = "reliability_contribution"
_POLICY = Remedy(
    "a policy of the table hides rows from the role, and no GRANT helps. Give the role BYPASSRLS; "
    "or run ALTER TABLE … NO FORCE ROW LEVEL SECURITY if the role owns the table, and ALTER TABLE "
    "… DISABLE ROW LEVEL SECURITY if it does not. Then {resume_runs}."
)
# where Postgres refuses it: the message is in the server's language
_CHECKS_POLICIES = ("check_enable_rls", "ExecWithCheckOptions")
_OURS: dict[str, type[ReliabilityError]] = {
    "RL001": AttemptFenced,
    "RL002": LedgerCorruption,
    "RL003": NotTheCoordinator,
    "RL004": TopologyUnknown,
}
_TYPES: dict[Kind, type[ReliabilityError]] = {
    Kind.OUTAGE: LedgerUnavailable,
    Kind.FULL: LedgerFull,
    Kind.BUSY: LedgerBusy,
    Kind.LOGIN: LedgerRefusedLogin,
    Kind.RIGHT: RightMissing,
    Kind.TEXT: TextNotStorable,
    Kind.REFUSAL: UnexpectedAnswer,
}
_ENDS_SESSION = ("FATAL", "PANIC")
_MISSING = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)
# A missing schema or table of the user's, or of a state, does not mean that the ledger is not
# migrated.
_OF_THE_LEDGER = re.compile(r"\breliability\b")
# An attempt's own table is indexed by its seal, and dropped when it has ended (H10).
_SEALED = re.compile(r"attempt_\d+_key")
_DROPPED = re.compile(r"\breliability_contribution\.attempt_\d+\b")
_PLACE_IN_COPY = re.compile(r"^COPY \w+, line \d+(, column \w+)?", re.MULTILINE)
# A refused login has no SQLSTATE, because there is no session: what servers say for each method
# (RDS says PAM of an expired token), what poolers say, and what libpq says of its files.
_REFUSED = re.compile(
    r"authentication failed|auth failed|no password supplied|no such user"
    r"|[Tt]enant or user not found"
    r"|role \"[^\"]*\" (does not exist|is not permitted to log in)"
    r"|pg_hba\.conf"  # no entry, or one that rejects: the name stands in every language's message
    r"|database \"[^\"]*\" does not exist|no such database|permission denied for database"
    r"|requires a valid client certificate"
)
# No session either: what servers say, PgBouncer and other poolers.
_NO_PLACE = re.compile(
    r"too many (clients|connections)|connection slots are reserved|no more connections allowed"
    r"|max(imum)? clients? (connections )?reached",
    re.IGNORECASE,
)
_NO_ADDRESS = re.compile(
    r"definition of service \"[^\"]*\" not found|service file \"[^\"]*\" not found"
)
_SAY_WHERE = (
    "say where it is, by a connection of Airflow (airflow connections add reliability_default "
    "--conn-type reliability …) or by a service file that PGSERVICEFILE names; "
    "docs/deployment/connections.md has all ways."
)


def translate(error: psycopg2.Error) -> ReliabilityError:
    text = described(error)
    if error.pgcode is None:  # of libpq, or of the driver: there is no session, or it is lost
        return _without_sqlstate(error, text)
    if error.pgcode in _OURS:
        return _OURS[error.pgcode](text)
    if error.diag.constraint_name == "ack_once_per_partition":
        return AlreadyAcked(text)
    if _SEALED.fullmatch(error.diag.constraint_name or "") and error.diag.schema_name == _STAGED:
        return AttemptFenced(f"the attempt is sealed: {text}")
    if isinstance(error, errors.UndefinedTable) and _DROPPED.search(text):
        return AttemptFenced(f"the attempt's table is gone: {text}")
    if isinstance(error, _MISSING) and _OF_THE_LEDGER.search(text):
        return LedgerNotMigrated(f"the ledger lacks an object that this release needs: {text}")
    kind = kind_of(error.pgcode, ends_session=error.diag.severity_nonlocalized in _ENDS_SESSION)
    # what Postgres does not say itself stands in the ledger with its message
    more = QUALIFY if lacks_schema(error.pgcode, error.diag.message_primary or "") else ""
    is_hidden = kind is Kind.RIGHT and error.diag.source_function in _CHECKS_POLICIES
    remedy = _POLICY if is_hidden else remedy_of(error.pgcode)
    return _TYPES[kind]("; ".join(filter(None, [text, more])), remedy=remedy)


def is_refused(error: psycopg2.Error) -> bool:
    """Say whether a server, or libpq by its files, refuses to open a session."""
    text = described(error)
    return error.pgcode is None and bool(_REFUSED.search(text) or _NO_ADDRESS.search(text))


def described(error: psycopg2.Error) -> str:
    """Return Postgres's message without the row that it is about.

    DETAIL and CONTEXT quote whole rows, which must not appear in logs or in the ledger. Only the
    line and column of a COPY, the key of a constraint, and HINT are kept, which says what to do.
    """
    message = error.diag.message_primary
    if message is None:  # raised by libpq: there is no session
        return " ".join(str(error).split())
    detail = error.diag.message_detail or ""
    place = _PLACE_IN_COPY.search(error.diag.context or "")
    more = [detail if detail.startswith("Key ") else "", place[0] if place else ""]
    hint = " ".join((error.diag.message_hint or "").split())
    return "; ".join(filter(None, [message, *more, hint]))


def _without_sqlstate(error: psycopg2.Error, text: str) -> ReliabilityError:
    if is_refused(error):
        return LedgerRefusedLogin(text, remedy=_SAY_WHERE if _NO_ADDRESS.search(text) else None)
    if _NO_PLACE.search(text):
        return LedgerFull(text)
    if isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError):
        return LedgerUnavailable(text)
    if type(error) is psycopg2.DatabaseError:  # an answer that broke off
        return LedgerUnavailable(text)
    return UnexpectedAnswer(text)
