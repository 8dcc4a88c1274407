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
from reliability.states.tables import StateTables
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
        _change_state(tx, tables, place)
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


def _change_state(tx: Transaction, tables: StateTables, place: Mapping[str, Any]) -> None:
    at = {**place, "state": tables.state.name}
    tx.one("advance_state", **at)
    rows = _sealed_rows(tx, tables, at)
    if place["replaced_attempt"] is None:
        _apply(tx, tables, at, rows)
    else:
        _swap(tx, tables, at, rows)


def _sealed_rows(tx: Transaction, tables: StateTables, at: Mapping[str, Any]) -> int:
    # Rows that were sealed and are gone must not be taken for an empty contribution (H2).
    sealed: int = tx.one("staged_rows", **at)["staged_rows"]
    found = tx.one(tables.fold(), **at)["rows"]
    if sealed != found:
        raise LedgerCorruption(
            f"{tables.contribution_table}: {sealed} rows were sealed for attempt "
            f"{at['txid']}:{at['attempt_id']}, and {found} are there"
        )
    return sealed


def _apply(tx: Transaction, tables: StateTables, at: Mapping[str, Any], rows: int) -> None:
    result = tx.one(tables.apply(), **at)
    if result["keys"] != result["applied"]:
        raise LedgerCorruption(
            f"{tables.target_name}: {result['keys']} keys of txid {at['txid']}, and only "
            f"{result['applied']} rows were older than it"
        )
    tx.one("insert_contribution", rows=rows, **at)


def _swap(tx: Transaction, tables: StateTables, at: Mapping[str, Any], rows: int) -> None:
    _check_replaced(tx, tables, at)
    tx.one("move_contribution", rows=rows, **at)
    tx.run(tables.changed_keys(), **at)
    for statement in tables.swap():
        tx.run(statement, **at)
    tx.run(tables.forget_swap())


def _check_replaced(tx: Transaction, tables: StateTables, at: Mapping[str, Any]) -> None:
    # What is taken out must be what went in: rows that are gone would be taken for zero (H2).
    header = tx.one("contribution", **at)
    old = {"txid": at["txid"], "attempt_id": at["replaced_attempt"]}
    kept = tx.one(tables.fold(), **old)["rows"]
    if header["attempt_id"] != at["replaced_attempt"] or header["rows"] != kept:
        raise LedgerCorruption(
            f"{tables.contribution_table}: attempt {at['txid']}:{header['attempt_id']} is on "
            f"record with {header['rows']} rows, and {kept} rows of attempt "
            f"{at['txid']}:{at['replaced_attempt']} are there"
        )


def _move_pointers(tx: Transaction, place: Mapping[str, Any]) -> None:
    if place["replaced_attempt"] is not None:
        tx.one("replace_attempt", **place)
    tx.one("commit_attempt", **place)
    tx.one("commit_transaction", **place)
    tx.one("advance_topology", **place)
    tx.one("log_commit", **place)
