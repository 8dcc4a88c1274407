"""Apply: what one commit does to one state, inside the commit's transaction.

A first commit adds the attempt's contribution. A replay puts it in the place of the one that it
replaces, as far as the state keeps enough to take that out again. What was sealed, and what is
taken out, is counted again first: rows that are gone are never zero (H2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.core.errors import LedgerCorruption, ReplayNotPossible
from reliability.core.state import replay_refusal
from reliability.ledger.door import Transaction
from reliability.states.append import move, rows_not_older, take_out
from reliability.states.first_commit import apply
from reliability.states.swap import swap
from reliability.states.tables import StateTables
from reliability.states.undo import undo


def change_state(tx: Transaction, tables: StateTables, place: Mapping[str, Any]) -> None:
    """Take the next commit number in one state, and add the contribution or replace one (C3).

    :param place: topology, txid, attempt_id, commit_number, and the attempt that is replaced,
        None for a first commit
    :raises LedgerCorruption: the state is not where the ledger says it is
    :raises ReplayNotPossible: the state does not keep what the replay would replace (H5)
    """
    at = {**place, "state": tables.state.name}
    tx.one("advance_state", **at)
    sealed = _sealed_rows(tx, tables, at)
    if place["replaced_attempt"] is None:
        rows = _add(tx, tables, at, sealed)
        tx.one("insert_contribution", **at, **_header(tables, rows))
    else:
        _replace(tx, tables, at, sealed)


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


def _header(tables: StateTables, rows: int) -> dict[str, Any]:
    kept = "present" if tables.keeps_contributions or tables.state.is_append else "compacted"
    return {"presence": kept if rows else "empty", "rows": rows}


# --- a first commit ------------------------------------------------------------------------------


def _add(tx: Transaction, tables: StateTables, at: Mapping[str, Any], sealed: int) -> int:
    """Add the attempt's contribution; return how many rows its header speaks of."""
    if tables.state.is_append:
        return _append(tx, tables, at, sealed)
    keys = _apply(tx, tables, at)
    if tables.keeps_contributions:
        return sealed
    tx.run(tables.clean(), **at)
    return keys


def _apply(tx: Transaction, tables: StateTables, at: Mapping[str, Any]) -> int:
    result = tx.one(apply(tables), **at)
    keys: int = result["keys"]
    if keys != result["applied"]:
        raise LedgerCorruption(
            f"{tables.target_name}: {keys} keys of txid {at['txid']}, and only "
            f"{result['applied']} rows were older than it"
        )
    return keys


def _append(tx: Transaction, tables: StateTables, at: Mapping[str, Any], sealed: int) -> int:
    is_first = at["replaced_attempt"] is None
    if is_first and (found := tx.one(rows_not_older(tables), **at)["rows"]):
        raise LedgerCorruption(
            f"{tables.target_name}: txid {at['txid']} is to be appended, and {found} rows are not "
            "older than it"
        )
    tx.run(move(tables), **at)
    return sealed


# --- a replay ------------------------------------------------------------------------------------


def _replace(tx: Transaction, tables: StateTables, at: Mapping[str, Any], sealed: int) -> None:
    _check_possible(tx, tables, at)
    header = tx.one("contribution", **at)
    if tables.keeps_contributions:
        replaced = {"txid": at["txid"], "attempt_id": at["replaced_attempt"]}
        kept = tx.one(tables.fold(), **replaced)["rows"]
        _check_taken_out(tables.contribution_table, at, header, kept)
        tx.one("move_contribution", **at, **_header(tables, sealed))
        for statement in swap(tables):
            tx.run(statement, **at)
        return
    statements = [take_out(tables)] if tables.state.is_append else undo(tables)
    taken_out = sum(tx.run(statement, **at) for statement in statements)
    _check_taken_out(tables.target_name, at, header, taken_out)
    rows = _add(tx, tables, at, sealed)
    tx.one("move_contribution", **at, **_header(tables, rows))


def _check_possible(tx: Transaction, tables: StateTables, at: Mapping[str, Any]) -> None:
    last = tx.one("last_contribution", **at)["txid"] or 0
    refusal = replay_refusal([tables.state], at["txid"], last + 1)
    if refusal is not None:
        raise ReplayNotPossible(f"txid {at['txid']}: {refusal}")


def _check_taken_out(
    table: str, at: Mapping[str, Any], header: Mapping[str, Any], found: int
) -> None:
    # What is taken out must be what went in: rows that are gone would be taken for zero (H2).
    if header["attempt_id"] != at["replaced_attempt"] or header["rows"] != found:
        raise LedgerCorruption(
            f"{table}: attempt {at['txid']}:{header['attempt_id']} is on record with "
            f"{header['rows']} rows, and {found} rows of attempt "
            f"{at['txid']}:{at['replaced_attempt']} are there"
        )
