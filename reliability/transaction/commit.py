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
from reliability.core.errors import LedgerCorruption, ReliabilityError
from reliability.ledger.door import Door, Row, Transaction
from reliability.states.tables import StateTables
from reliability.transaction.declare import declared_tables

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One change of the states; `replaced_attempt` is None for a first commit."""

    attempt: TransactionAttempt
    commit_number: int
    replaced_attempt: int | None


def drain(door: Door, topology: str, *, overdue: int = 0) -> list[Committed]:
    """Commit everything whose turn it is, in order: first commits, then processed replays (C5).

    :param overdue: leave alone what was processed less than so many seconds ago; whoever passes
        by gives a txid's own commit task that long
    :raises ReliabilityError: the first commit that was due failed. What fails behind it is only
        logged: the caller's own txid is in.
    """
    committed: list[Committed] = []
    while True:
        try:
            done = _commit_next(door, topology, overdue)
        except ReliabilityError as error:
            if not committed:
                raise
            logger.warning("commit stops behind %s: %s", committed[-1].attempt, error)
            return committed
        if done is None:
            return committed
        logger.info("%s %s committed as c=%s", topology, done.attempt, done.commit_number)
        committed.append(done)


def _commit_next(door: Door, topology: str, overdue: int) -> Committed | None:
    with door.transaction() as tx:
        tx.one("lock_topology", topology=topology)
        due = tx.first("next_to_commit", topology=topology, overdue=overdue)
        if due is None or (overdue and not due["is_overdue"]):
            return None
        place = _place(topology, due)
        for tables in declared_tables(tx, topology):
            _change_state(tx, tables, place)
        _move_pointers(tx, place)
        tx.all("satisfy_requests", **place)
        return Committed(
            attempt=TransactionAttempt(due["txid"], due["attempt_id"]),
            commit_number=place["commit_number"],
            replaced_attempt=due["committed_attempt"],
        )


def _place(topology: str, due: Row) -> dict[str, Any]:
    return {
        "topology": topology,
        "txid": due["txid"],
        "attempt_id": due["attempt_id"],
        "replaced_attempt": due["committed_attempt"],
        "commit_number": due["commit_number"] + 1,
    }


def _change_state(tx: Transaction, tables: StateTables, place: Mapping[str, Any]) -> None:
    at = {**place, "state": tables.state.name}
    tx.one("advance_state", **at)
    rows = tx.one("staged_rows", **at)["staged_rows"]
    if place["replaced_attempt"] is None:
        _apply(tx, tables, at, rows)
    else:
        _swap(tx, tables, at, rows)


def _apply(tx: Transaction, tables: StateTables, at: Mapping[str, Any], rows: int) -> None:
    result = tx.one(tables.apply(), **at)
    if result["keys"] != result["applied"]:
        raise LedgerCorruption(
            f"{tables.target_name}: {result['keys']} keys of txid {at['txid']}, and only "
            f"{result['applied']} rows were older than it"
        )
    _check_presence(tables, at, rows, present=result["keys"] > 0)
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


def _check_presence(
    tables: StateTables, at: Mapping[str, Any], rows: int, *, present: bool
) -> None:
    if present != (rows > 0):
        raise LedgerCorruption(
            f"{tables.contribution_table}: {rows} rows were sealed for attempt "
            f"{at['txid']}:{at['attempt_id']}, and that is not what is there"
        )


def _move_pointers(tx: Transaction, place: Mapping[str, Any]) -> None:
    if place["replaced_attempt"] is not None:
        tx.one("replace_attempt", **place)
    tx.one("commit_attempt", **place)
    tx.one("commit_transaction", **place)
    tx.one("advance_topology", **place)
    tx.one("log_commit", **place)
