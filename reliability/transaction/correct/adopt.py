"""Adopt an existing table: its rows become the contribution of txid 0 to a state (H7).

History begins there: no txid takes these rows out, and a rollback to 0 returns to them. It is one
transaction, before anything of the topology has committed, and declares the state on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.audits import AuditOutcome, Of, refuse_violations
from reliability.core.definitions import Topology
from reliability.core.erasure import ErasedKeys
from reliability.core.errors import AdoptNotPossible, RightMissing
from reliability.core.names import name_of_table, parts_of
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import PATIENCE_SECONDS, check_at_rest
from reliability.ledger.roles import act_as_owner
from reliability.states.adoption import AdoptedTable
from reliability.states.audit_sql import query_of, run_audit
from reliability.states.erasure import count_erased
from reliability.states.kinds import StoredState, stored_state
from reliability.states.tables import StateTables
from reliability.transaction.commit.participant import rolled_back
from reliability.transaction.correct.park import NOT_RECORDED
from reliability.transaction.process.attempt_messages import read_erased
from reliability.transaction.topology.declare import (
    check_table_is_nobodys,
    check_tables,
    init_states,
    keep_history,
    record_state,
)
from reliability.transaction.topology.lifecycle import count_rows, record_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What an adoption has done, or would do.

    :param adopted_table: where the rows come from
    :param is_in_place: it is the state's own table, which has been taken over; otherwise its rows
        were copied, and it stays as it is
    :param statements: what changes tables
    """

    topology: str
    state: str
    table: str
    adopted_table: str
    rows: int
    is_in_place: bool
    is_dry_run: bool
    statements: tuple[str, ...]


def adopt(
    connection: LedgerConnection,
    topology: Topology,
    state: str,
    table: str,
    *,
    reason: str = "",
    by: str = NOT_RECORDED,
    dry_run: bool = False,
) -> Adopted:
    """Make the rows of a table those of a state.

    :param table: `schema.table`, or a name in public; that of the state, or another one
    :raises AdoptNotPossible: the table does not fit, or it is too late; nothing was changed
    :raises TargetTableTaken: the state's table belongs to another state; or it exists, and another
        table should be copied into it
    :raises AuditFailed: the rows violate an audit of the state's table
    :raises LedgerBusy: somebody works with the table
    :raises RightMissing: the ledger has roles, and this one is not the owner; or the table is
        another role's
    """
    own, name = _tables_of(topology, state), _name_of(table)
    patient = connection.transaction(patience=PATIENCE_SECONDS)
    with rolled_back(connection) if dry_run else patient as tx:
        act_as_owner(tx, topology.name, "adopt")
        locked = record_topology(tx, topology)
        check_at_rest(locked, topology.name)  # audits of a decided commit have not seen the rows
        _check_in_time(locked["curr_txid"], topology)
        adopted = _look_at(tx, own, name)
        statements, rows = _take_over(tx, adopted)
        tx.one(
            "record_adoption",
            adopted_table=name_of_table(*name),
            rows=rows,
            reason=reason or None,
            adopted_by=by,
            **StateKey(topology.name, state),
        )
        check_tables(tx, own)
        _check_erased(tx, own, read_erased(tx, topology), name_of_table(*name))
        _audit(tx, own)
    return Adopted(
        topology=topology.name,
        state=state,
        table=own.target_name,
        adopted_table=name_of_table(*name),
        rows=rows,
        is_in_place=adopted.is_in_place,
        is_dry_run=dry_run,
        statements=statements,
    )


def _name_of(table: str) -> tuple[str, str]:
    """Split `schema.table`, or a name in public, with a part in quotes if it has a dot."""
    try:
        parts = parts_of(table)
        schema, name = parts if len(parts) > 1 else ("public", *parts)
    except ValueError:
        raise AdoptNotPossible(
            f"{table!r} is no name of a table", remedy="write schema.table."
        ) from None
    return schema, name


def _tables_of(topology: Topology, name: str) -> StoredState:
    names = [state.name for state in topology.states]
    if name not in names:
        raise AdoptNotPossible(
            f"{topology.name} has no state {name}",
            remedy=f"name one of its states: {', '.join(names)}.",
        )
    state = topology.states[names.index(name)]
    if state.database:
        raise AdoptNotPossible(
            f"state {name} is in database {state.database}, and only a state in the ledger's "
            "database can adopt a table",
            remedy="deliver the rows as a first batch instead.",
        )
    return stored_state(topology.name, state)


def _check_in_time(curr_txid: int, topology: Topology) -> None:
    if curr_txid > 1:
        raise AdoptNotPossible(
            f"{topology.name} has committed txids, and an adopted row comes before txid 1",
            remedy="deliver the rows as a batch; or adopt the table with a topology of another "
            "name, before its first commit.",
        )


def _look_at(tx: DatabaseTransaction, own: StoredState, name: tuple[str, str]) -> AdoptedTable:
    """Return the table that is to be adopted; raise unless it fits."""
    called = name_of_table(*name)
    if earlier := tx.first("adoption", **StateKey(own.topology, own.name)):
        raise AdoptNotPossible(
            f"state {own.name} of {own.topology} has adopted {earlier['adopted_table']} already",
            remedy="do nothing, if that is the table, as after an adoption whose answer was lost; "
            f"to adopt another one, `reliability drop {own.topology} --keep-tables` first.",
        )
    adopted, row = _described(tx, own, name)
    if adopted.is_in_place:
        check_table_is_nobodys(tx, own)
        _check_is_own(row, called, own.topology)
    tx.run(adopted.hold())
    adopted, _ = _described(tx, own, name)  # who was waited for may have changed it
    if obstacles := adopted.obstacles():
        raise _not_possible(own, f"{called} does not fit: {'; '.join(obstacles)}")
    _check_rows(tx, adopted)
    return adopted


def _described(
    tx: DatabaseTransaction, own: StoredState, name: tuple[str, str]
) -> tuple[AdoptedTable, Row]:
    called = name_of_table(*name)
    row = tx.first("table_to_adopt", schema=name[0], table=name[1])
    if row is None:
        raise _not_possible(own, f"there is no table {called}")
    unique = tx.all("unique_keys", table=called)
    keys = [key for key in unique if key["columns"] == sorted(own.key)]
    known = {of: row[of] for of in ("is_ordinary", "is_lockable", "rule")}
    return AdoptedTable(own, name, keys=keys, columns=row["columns"] or (), **known), row


def _check_rows(
    tx: DatabaseTransaction, adopted: AdoptedTable, *, are_copied: bool = False
) -> None:
    counted = tx.one(adopted.count(are_copied=are_copied))
    wrong = [
        text.format(counted[what])
        for what, text in (
            ("without_key", "{:,} rows have NULL in the key"),
            ("repeated", "{:,} rows have the key of another row"),
            ("without_count", "{:,} rows have NULL in a count"),
        )
        if counted[what]
    ]
    if wrong:
        called = name_of_table(*adopted.name)
        raise _not_possible(adopted.tables, f"{called} does not fit: {'; '.join(wrong)}")


def _check_is_own(row: Row, table: str, topology: str) -> None:
    if not row["is_own"]:
        raise RightMissing(
            f"{table} belongs to role {row['owner']}, and role {row['role']} has to own it",
            remedy=f"as a superuser, run: ALTER TABLE {table} OWNER TO {row['role']};",
            topology=topology,
        )


def _take_over(tx: DatabaseTransaction, adopted: AdoptedTable) -> tuple[tuple[str, ...], int]:
    """Declare the state, with the rows of the table; return what changed tables, and the rows."""
    own = adopted.tables
    if adopted.is_in_place:
        tx.run(own.create_contributions())
        record_state(tx, own)
        keep_history(tx, own)
    else:
        init_states(tx, own.topology, [own])
        if count_rows(tx, own):
            raise _not_possible(own, f"its table {own.target_name} has rows already")
    statements = [*adopted.statements(), *adopted.contribute()]
    written = [tx.run(statement) for statement in statements]
    if not adopted.is_lockable and not own.is_view:
        _check_rows(tx, adopted, are_copied=True)  # nobody was kept from changing the others
    rows = count_rows(tx, own) if adopted.is_in_place else written[0]
    return tuple(tx.text_of(statement) for statement in statements), rows


def _check_erased(tx: DatabaseTransaction, own: StoredState, known: ErasedKeys, table: str) -> None:
    """Raise if the state now has rows of erased persons, which every attempt leaves out (H12)."""
    for column in known.columns_of(own.state):
        if rows := tx.one(count_erased(own, column, known))["rows"]:
            raise AdoptNotPossible(
                f"state {own.name} of {own.topology}: {rows:,} rows of {table} are of persons who "
                f"were erased from {own.topology} by their {column}, and would come back",
                remedy=f"delete the rows of these persons from {table}; nothing was changed.",
            )


def _audit(tx: DatabaseTransaction, own: StoredState) -> None:
    """Run the audits of the state's table: otherwise they would refuse the first commit (C12)."""
    audits = [audit for audit in own.state.audits if audit.of is Of.TABLE]
    outcomes = [
        AuditOutcome(
            state=own.name,
            name=audit.name,
            of=audit.of,
            severity=audit.severity,
            **run_audit(tx, tx.text_of(query_of(audit, own))),
        )
        for audit in audits
    ]
    if audits:
        tx.queue("limit_statements", seconds=0)
    refuse_violations(outcomes)


def _not_possible(own: StateTables, why: str) -> AdoptNotPossible:
    return AdoptNotPossible(f"state {own.name} of {own.topology}: {why}")
