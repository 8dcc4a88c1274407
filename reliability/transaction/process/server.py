"""The server under the ledger: sessions that must end, and a restore that must be noticed."""

from __future__ import annotations

import logging

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import UnexpectedAnswer
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection

logger = logging.getLogger(__name__)


def end_holders_of(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt
) -> None:
    """End what holds an attempt's row, or that of an attempt that falls with it (A3)."""
    place = {"topology": topology, "txid": attempt.txid, "attempt_id": attempt.attempt_id}
    with connection.transaction() as tx:
        rows = tx.all("attempts_that_fall_with", **place)
    for row in rows:
        end_sessions_of(connection, topology, TransactionAttempt(row["txid"], row["attempt_id"]))


def end_sessions_of(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt
) -> None:
    """End what Spark tasks still do for an attempt that has ended, or is about to.

    A stalled COPY listens to no timeout and no cancel: it holds up whoever cleans its table (A4);
    who holds the attempt's row holds up whoever has the topology (A3).

    A transaction of its own: a server may refuse it, or have another role's session. What such a
    session still does rolls back all the same, only later; nothing else has to wait for that.
    """
    name = f"reliability {topology} {attempt}"
    try:
        with connection.transaction() as tx:
            for _ in tx.all("end_sessions_of_attempt", application_name=name):
                logger.info("ended a session of attempt %s of %s", attempt, topology)
    except UnexpectedAnswer as error:
        logger.warning("sessions of attempt %s of %s are left alone: %s", attempt, topology, error)


def fence_after_restore(tx: DatabaseTransaction) -> None:
    """Fence every live attempt if the server's timeline has changed since anybody looked (A1).

    After a restore from backup the ledger may grant an attempt_id that it had granted before, and
    whoever works for the first one is still there. A server that does not say its timeline is
    left alone: there a person says it, by `reliability restored`.
    """
    timeline = tx.one("server_timeline")
    if timeline["now"] is None or timeline["now"] == timeline["known"]:
        return
    if timeline["known"] is not None:
        fenced = tx.all("fence_all_live_attempts")
        logger.warning(
            "the server's timeline was %s and is %s: %s attempts fenced",
            timeline["known"],
            timeline["now"],
            len(fenced),
        )
    tx.run("record_timeline", timeline=timeline["now"])
