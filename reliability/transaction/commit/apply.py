"""Apply: what one change does to one state, inside the change's transaction.

A first commit adds the attempt's contribution. A replay puts it in the place of the one that it
replaces, as far as the state keeps enough to take that out again. A rollback takes out what all
later txids added. What was sealed, and what is taken out, is counted again first: rows that are
gone are never zero (H2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reliability.core.difference import Difference
from reliability.core.errors import LedgerCorruption, ReplayNotPossible
from reliability.core.state import replay_refusal
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.states import difference, rollback
from reliability.states.append import move, replaced_rows, rows_not_older, take_out
from reliability.states.first_commit import apply
from reliability.states.swap import (
    changed,
    changed_keys,
    count_changed,
    patterns_of_changed,
    swap,
)
from reliability.states.tables import StateTables
from reliability.states.undo import reached, undo
from reliability.transaction.commit.headers import check_headers
from reliability.transaction.topology.declare import compacted_through

DifferenceObserver = Callable[[DatabaseTransaction, StateTables, Mapping[str, Any]], object]
"""Who looks at the rows that differ, while before and after are both there; told what changes: the
txid, and the attempt_id of a replay."""


def commit_state(tx: DatabaseTransaction, tables: StateTables, place: Mapping[str, Any]) -> None:
    """Take the next commit number in one state, and add the attempt's contribution (C3).

    :param place: topology, txid, attempt_id, commit_number, and replaced_attempt: None
    :raises LedgerCorruption: the state is not where the ledger says it is
    """
    at = {**place, "state": tables.state.name}
    tx.one("advance_state", **at)
    rows = _add(tx, tables, at, _sealed_rows(tx, tables, at))
    tx.one("insert_contribution", **at, **_header(tables, rows))


def replay_state(
    tx: DatabaseTransaction,
    tables: StateTables,
    place: Mapping[str, Any],
    observer: DifferenceObserver | None = None,
) -> Difference:
    """Take the next commit number in one state, and put a contribution in another one's place.

    :param place: topology, txid, attempt_id, commit_number, and the attempt that is replaced
    :raises LedgerCorruption: the state is not where the ledger says it is
    :raises ReplayNotPossible: the state does not keep what the replay would replace (H5)
    """
    at = {**place, "state": tables.state.name}
    tx.one("advance_state", **at)
    sealed = _sealed_rows(tx, tables, at)
    _check_possible(tx, tables, at)
    header = tx.one("contribution", **at)
    if tables.keeps_contributions:
        _swap(tx, tables, at, header, sealed)
    else:
        _take_out_and_add(tx, tables, at, header, sealed)
    return _difference(tx, tables, at, observer)


def roll_back_state(
    tx: DatabaseTransaction,
    tables: StateTables,
    place: Mapping[str, Any],
    observer: DifferenceObserver | None = None,
) -> Difference:
    """Take the next commit number in one state, and take out what came after a txid (H4).

    Whether the state can has been asked before, for all states of the topology.

    :param place: topology, commit_number, and the txid that is rolled back to
    """
    at = {**place, "state": tables.state.name, "attempt_id": None}
    tx.one("advance_state", **at)
    if tables.keeps_contributions or tables.state.is_append:
        # Keys whose rows are gone would keep what they have, and nothing would ever tell.
        check_headers(tx, tables, after=place["txid"])
    if tables.state.is_append:
        tx.run(difference.remember(tables, rollback.later_rows()), **at)
        steps = [rollback.take_out_later(tables)]
    elif tables.keeps_contributions:
        tx.run(rollback.later_keys(tables), **at)
        patterns = _look_at_changed(tx, tables)
        tx.run(difference.remember(tables, changed(tables)), **at)
        steps = rollback.recompute(tables, patterns)
    else:
        last = {**at, "txid": place["txid"] + 1}
        tx.run(difference.remember(tables, reached(tables)), **last)
        for statement in undo(tables):
            tx.run(statement, **last)
        # a row remembers one step: it cannot go back once more
        tx.run("end_history", **at)
        steps = []
    tx.run("drop_later_contributions", **at)
    for statement in steps:
        tx.run(statement, **at)
    return _difference(tx, tables, at, observer)


def _difference(
    tx: DatabaseTransaction,
    tables: StateTables,
    at: Mapping[str, Any],
    observer: DifferenceObserver | None,
) -> Difference:
    row = tx.one(difference.count(tables), **at)
    if observer is not None:
        observer(tx, tables, at)
    tx.run(difference.forget())
    return Difference.from_json({"state": tables.state.name, **row})


def _sealed_rows(tx: DatabaseTransaction, tables: StateTables, at: Mapping[str, Any]) -> int:
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


def _add(tx: DatabaseTransaction, tables: StateTables, at: Mapping[str, Any], sealed: int) -> int:
    """Add the attempt's contribution; return how many rows its header speaks of."""
    if tables.state.is_append:
        return _append(tx, tables, at, sealed)
    keys = _apply(tx, tables, at)
    if tables.keeps_contributions:
        return sealed
    tx.run(tables.clean(), **at)
    return keys


def _apply(tx: DatabaseTransaction, tables: StateTables, at: Mapping[str, Any]) -> int:
    result = tx.one(apply(tables), **at)
    keys: int = result["keys"]
    if keys != result["applied"]:
        raise LedgerCorruption(
            f"{tables.target_name}: {keys} keys of txid {at['txid']}, and only "
            f"{result['applied']} rows were older than it"
        )
    return keys


def _append(
    tx: DatabaseTransaction, tables: StateTables, at: Mapping[str, Any], sealed: int
) -> int:
    is_first = at["replaced_attempt"] is None
    if is_first and (found := tx.one(rows_not_older(tables), **at)["rows"]):
        raise LedgerCorruption(
            f"{tables.target_name}: txid {at['txid']} is to be appended, and {found} rows are not "
            "older than it"
        )
    tx.run(move(tables), **at)
    return sealed


# --- a replay ------------------------------------------------------------------------------------


def _swap(
    tx: DatabaseTransaction,
    tables: StateTables,
    at: Mapping[str, Any],
    header: Mapping[str, Any],
    sealed: int,
) -> None:
    replaced = {"txid": at["txid"], "attempt_id": at["replaced_attempt"]}
    kept = tx.one(tables.fold(), **replaced)["rows"]
    _check_taken_out(tables.contribution_table, at, header, kept)
    tx.one("move_contribution", **at, **_header(tables, sealed))
    tx.run(changed_keys(tables), **at)
    patterns = _look_at_changed(tx, tables)
    tx.run(difference.remember(tables, changed(tables)), **at)
    for statement in swap(tables, patterns):
        tx.run(statement, **at)


def _look_at_changed(tx: DatabaseTransaction, tables: StateTables) -> list[Row]:
    """Help the planner: how many keys there are, and which columns of them are NULL."""
    tx.run(count_changed())
    return tx.all(patterns_of_changed(tables)) or [dict.fromkeys(tables.key, False)]


def _take_out_and_add(
    tx: DatabaseTransaction,
    tables: StateTables,
    at: Mapping[str, Any],
    header: Mapping[str, Any],
    sealed: int,
) -> None:
    if tables.state.is_append:
        statements = [take_out(tables)]
        tx.run(difference.remember(tables, replaced_rows()), **at)
    else:
        statements = undo(tables)
        added = tables.folded_attempt("attempt_id")
        tx.run(difference.remember(tables, reached(tables, also=added)), **at)
    taken_out = sum(tx.run(statement, **at) for statement in statements)
    _check_taken_out(tables.target_name, at, header, taken_out)
    rows = _add(tx, tables, at, sealed)
    tx.one("move_contribution", **at, **_header(tables, rows))


def _check_possible(tx: DatabaseTransaction, tables: StateTables, at: Mapping[str, Any]) -> None:
    last = tx.one("last_contribution", **at)["txid"] or 0
    through = compacted_through(tx, at["topology"])
    refusal = replay_refusal([tables.state], at["txid"], last + 1, through)
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
