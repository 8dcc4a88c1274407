"""The Postgres server of the ledger: end sessions, detect a restore."""

from __future__ import annotations

import logging

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import RightMissing, UnexpectedAnswer
from reliability.core.names import session_name
from reliability.core.statement_key import AttemptKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row

logger = logging.getLogger(__name__)


def end_holders_of(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt
) -> None:
    """End sessions that hold the row of an attempt, or of one that fails with it (A3)."""
    key = AttemptKey(topology, attempt.txid, attempt.attempt_id)
    for row in connection.all("attempts_that_fall_with", **key):
        end_sessions_of(connection, topology, TransactionAttempt(**row))


def end_sessions_of(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt
) -> None:
    """End the sessions of Spark tasks that work for an ended or ending attempt.

    A stalled COPY obeys no timeout and no cancel, and blocks the cleaning of its table (A4); a
    session that holds the attempt's row blocks the holder of the topology (A3).

    Runs in its own transaction, because the server may refuse it, for example if the session has
    another role. The session's work is rolled back anyway, only later; nothing else waits for that.
    """
    name = session_name(f"reliability {topology} {attempt}")
    try:
        for row in connection.all("end_sessions_of_attempt", application_name=name):
            if row["ended"]:
                logger.info("ended a session of attempt %s of %s", attempt, topology)
    except (RightMissing, UnexpectedAnswer) as error:
        logger.warning("sessions of attempt %s of %s cannot be ended: %s", attempt, topology, error)


def fence_every_attempt(tx: DatabaseTransaction) -> list[Row]:
    """Fence what any process may work for, and return it; a commit that is decided goes on (C6)."""
    tx.queue("let_no_driver_decide")
    return tx.all("fence_all_live_attempts")


def fence_after_restore(tx: DatabaseTransaction) -> None:
    """Fence every live attempt if the server's timeline has changed since the last check (A1).

    After a restore from backup the ledger may grant an attempt_id a second time, while processes
    still work for the first. If a server does not report its timeline, a person must run
    `reliability restored`.
    """
    timeline = tx.one("server_timeline")
    if timeline["now"] is None or timeline["now"] == timeline["known"]:
        return
    if timeline["known"] is not None:
        fenced = fence_every_attempt(tx)
        logger.warning(
            "the server's timeline was %s and is %s: %s attempts fenced",
            timeline["known"],
            timeline["now"],
            len(fenced),
        )
    tx.run("record_timeline", timeline=timeline["now"])
