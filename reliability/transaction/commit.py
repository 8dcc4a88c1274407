"""Commit: the one serialised step. Every change of the states is one Postgres transaction.

1. lock the topology, in a statement of its own (C1)
2. read whose turn it is: the first commit of curr_txid, else the oldest processed replay
3. take the next commit number c, in every state: a second apply of c finds no row (C3)
4. apply the contribution to every state, or swap it for the one it replaces
5. move the pointers: attempt COMMITTED, transaction, curr_txid, commit log
6. satisfy who asked for it, and COMMIT
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import LedgerCorruption, ReliabilityError, UnexpectedAnswer
from reliability.ledger.door import Door, Row, Transaction
from reliability.ledger.locks import PATIENCE_SECONDS, lock_topology
from reliability.transaction.apply import change_state
from reliability.transaction.declare import declared_tables

logger = logging.getLogger(__name__)
PASSING_PATIENCE_SECONDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One change of the states; `replaced_attempt` is None for a first commit."""

    attempt: TransactionAttempt
    commit_number: int
    replaced_attempt: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A commit that Postgres refused: a number too large, a constraint of the user's."""

    attempt: TransactionAttempt
    error: ReliabilityError


def drain(
    door: Door, topology: str, *, own_txid: int | None = None, overdue: int = 0
) -> list[Committed]:
    """Commit everything whose turn it is, in order: first commits, then processed replays (C5).

    :param own_txid: raise if this txid's commit is refused; what is refused of others is logged
    :param overdue: leave alone what was processed less than so many seconds ago, and go away if
        somebody else is at work; for those who pass by
    """
    committed: list[Committed] = []
    while True:
        done = _commit_next(door, topology, overdue)
        if done is None:
            return committed
        if isinstance(done, Committed):
            logger.info("%s %s committed as c=%s", topology, done.attempt, done.commit_number)
            committed.append(done)
        elif done.attempt.txid == own_txid:
            raise done.error
        else:
            logger.warning("%s %s was refused: %s", topology, done.attempt, done.error)


def _commit_next(door: Door, topology: str, overdue: int) -> Committed | Refused | None:
    due: Row | None = None
    try:
        with door.transaction() as tx:
            lock_topology(tx, topology, PASSING_PATIENCE_SECONDS if overdue else PATIENCE_SECONDS)
            due = tx.first("next_to_commit", topology=topology, overdue=overdue)
            if due is None or (overdue and not due["is_overdue"]):
                return None
            return _commit(tx, _place(topology, due))
    except (UnexpectedAnswer, LedgerCorruption) as error:
        if due is None:
            raise
        return _refuse(door, _place(topology, due), error)


def _commit(tx: Transaction, place: Mapping[str, Any]) -> Committed:
    for tables in declared_tables(tx, place["topology"]):
        change_state(tx, tables, place)
    _move_pointers(tx, place)
    tx.all("satisfy_requests", **place)
    return Committed(
        attempt=TransactionAttempt(place["txid"], place["attempt_id"]),
        commit_number=place["commit_number"],
        replaced_attempt=place["replaced_attempt"],
    )


def _refuse(door: Door, place: Mapping[str, Any], error: ReliabilityError) -> Refused:
    """Fail the attempt: left PROCESSED, every later request would adopt it and fail again."""
    with door.transaction() as tx:
        lock_topology(tx, place["topology"])
        tx.run("refuse_attempt", reason_code=error.code, reason=error.what, **place)
    attempt = TransactionAttempt(place["txid"], place["attempt_id"])
    return Refused(attempt=attempt, error=error)


def _place(topology: str, due: Row) -> dict[str, Any]:
    return {
        "topology": topology,
        "txid": due["txid"],
        "attempt_id": due["attempt_id"],
        "nonce": due["nonce"],
        "replaced_attempt": due["committed_attempt"],
        "commit_number": due["commit_number"] + 1,
    }


def _move_pointers(tx: Transaction, place: Mapping[str, Any]) -> None:
    if place["replaced_attempt"] is not None:
        tx.one("replace_attempt", **place)
    tx.one("commit_attempt", **place)
    tx.one("commit_transaction", **place)
    tx.one("advance_topology", **place)
    tx.one("log_commit", **place)
