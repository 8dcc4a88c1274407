"""Apply: what one commit does to one state, inside the commit's transaction.

A first commit adds the attempt's contribution, a replay swaps it for the one it replaces. What
was sealed, and what is taken out, is counted again first: rows that are gone are never zero (H2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.core.errors import LedgerCorruption
from reliability.ledger.door import Transaction
from reliability.states.tables import StateTables


def change_state(tx: Transaction, tables: StateTables, place: Mapping[str, Any]) -> None:
    """Take the next commit number in one state, and apply its contribution or swap it (C3)."""
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
