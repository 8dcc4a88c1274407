"""Compaction: fold contributions beyond a state's horizon to one row a key (H2).

1. read which states, in which databases, have a horizon
2. under the topology's lock, decide through which txid each of them compacts, and make it durable:
   from then on none of these txids can be replayed, in any database, and no rollback can go behind
   them
3. in each database, move their rows out of attempts' own tables
4. in each database, under the lock that its commits take, fold them: some txids per transaction

The third step is called a merge. A sweep merges all but the newest tables of every state (H10): the
topology's lock is not needed, because the rows that count are the same before and after.

The next call completes what a dead process left unfinished. Compaction changes no row of a target,
and no result of a later replay or rollback.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

from reliability.core.errors import LedgerCorruption, RightMissing, Transient
from reliability.core.progress import UNSEEN, StateProgress
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection
from reliability.ledger.locks import PATIENCE_SECONDS, check_at_rest, holding
from reliability.states import attempt_table
from reliability.states.compact_history import compact_history
from reliability.states.headers import check_headers
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables

logger = logging.getLogger(__name__)

# Rows that one transaction folds; it holds the topology's lock meanwhile.
MAX_ROWS = 1_000_000
# A query of the contributions is planned with each table of an attempt: only so many stay.
KEPT_TABLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result for one state that has a horizon.

    :param through: no txid up to this one can be replaced in it any more
    :param txids: how many this call has folded
    :param rows_before: rows of the keys that had several rows; `rows_after`: their rows now
    :param held_up_by: a txid beyond the horizon that may still change, None if there is none
    """

    state: str
    database: str
    through: int
    txids: int = 0
    rows_before: int = 0
    rows_after: int = 0
    held_up_by: int | None = None

    def __bool__(self) -> bool:
        return self.txids > 0


def compact(
    connection: LedgerConnection,
    topology: str,
    *,
    patience: int = PATIENCE_SECONDS,
    progress: StateProgress = UNSEEN,
) -> list[Compacted]:
    """Fold what is beyond the horizon in every state that has one; safe to repeat.

    :param patience: how long to wait for the topology
    :raises LedgerBusy: another process held it for longer, or a reader held an attempt's own
        table; or a change of the states is in progress
    :raises LedgerCorruption: rows that a header records are missing; folding of this state stops
    """
    with TopologyDatabases.of_known(connection, topology) as databases:
        horizons = _decide(databases, patience)
        progress.more(len(horizons))
        compacted: list[Compacted] = []
        for state, through in horizons:
            progress.now(state.state)
            compacted.append(_compact(databases, state, through, patience))
        return compacted


# --- horizons ------------------------------------------------------------------------------------


def _decide(databases: TopologyDatabases, patience: int) -> list[tuple[Compacted, int]]:
    """Decide for all states at once, while no attempt can begin and no change is in progress.

    A checkpoint that is not COMMITTED may be a rollback that other databases have applied already.

    :returns: each state that has a horizon as it is, and through which txid it will be compacted
    """
    states = [
        (connection.database, row)
        for connection in databases.all
        for row in connection.all("states", topology=databases.topology)
        if (row["keep_txids"], row["keep_age"]) != (None, None)
    ]
    if not states:
        return []
    with holding(databases.coordinator, databases.topology, patience) as (tx, locked):
        check_at_rest(locked, databases.topology)
        horizons: list[tuple[Compacted, int]] = []
        for database, state in states:
            after = state["compacted_through"]
            row = tx.one("horizon", after=after, **state)
            name, held_up_by = state["state"], row["held_up_by"]
            now = Compacted(state=name, database=database, through=after, held_up_by=held_up_by)
            horizons.append((now, max(row["through"], after)))  # it never decreases
        furthest = max(through for _, through in horizons)
        tx.run("decide_compaction", topology=databases.topology, through=furthest)
    return horizons


# --- one state -----------------------------------------------------------------------------------


class FoldedTxids(NamedTuple):
    """What one transaction has folded of one state."""

    through: int
    txids: int
    rows_before: int
    rows_after: int


def _compact(
    databases: TopologyDatabases, compacted: Compacted, through: int, patience: int
) -> Compacted:
    """Fold one state; a drop or an alteration may have removed it meanwhile."""
    connection = databases.connection_of(compacted.database)
    key = StateKey(databases.topology, compacted.state)
    if (tables := _tables(connection, key)) is not None:
        merge_tables_of(connection, tables, through)
    while compacted.through < through:
        with holding(connection, databases.topology, patience) as (tx, _):
            tables = _tables(tx, key)
            step = fold_step(tx, tables, through) if tables is not None else None
        if step is None:  # another process has folded them, or they are gone
            break
        compacted = replace(
            compacted,
            through=step.through,
            txids=compacted.txids + step.txids,
            rows_before=compacted.rows_before + step.rows_before,
            rows_after=compacted.rows_after + step.rows_after,
        )
    return compacted


def _tables(ledger: Ledger, key: StateKey) -> StateTables | None:
    """Return the tables of a state; None if it is gone."""
    declared = declared_tables(ledger, key.topology)
    return next((tables for tables in declared if tables.name == key.state), None)


def fold_step(
    tx: DatabaseTransaction, tables: StateTables, through: int, max_rows: int = MAX_ROWS
) -> FoldedTxids | None:
    """Fold the next txids up to `through`, limited by their rows; None if there is none.

    Requires the topology's lock, and that nothing up to `through` can be replayed.

    :raises LedgerCorruption: the rows are not those that the headers record (H2)
    """
    key = StateKey(tables.topology, tables.name)
    row = tx.first("txids_to_compact", through=through, most=max_rows, **key)
    if row is None:
        return None
    span = {"after": row["after"], "through": row["through"]}
    # Folding would count missing rows as zero and hide the loss for ever (H2).
    if row["txids"] != row["through"] - row["after"]:
        raise LedgerCorruption(
            f"{tables.contribution_table}: {row['txids']} of the txids {row['after'] + 1} to "
            f"{row['through']} are recorded"
        )
    check_headers(tx, tables, **span)
    tx.run("mark_compacted", **span, **key)
    folded = compact_history(tx, tables, **span)
    tx.one("compact_state", **span, **key)
    return FoldedTxids(row["through"], row["txids"], folded["taken"], folded["stored"])


# --- merge ---------------------------------------------------------------------------------------


def merge_tables(connection: LedgerConnection, topology: str) -> int:
    """Merge all but the newest tables of each state, and return how many; safe to repeat.

    Of a state whose rows are elsewhere, what a commit has left is dropped (H10).
    """
    merged = 0
    with TopologyDatabases.of(connection, topology) as databases:
        for database in databases.all:
            try:
                merged += _merge_in(database, topology)
            except Transient as error:  # a reader held a table for too long
                logger.info("tables of %s are merged later: %s", topology, error)
    return merged


def _merge_in(connection: LedgerConnection, topology: str) -> int:
    merged = 0
    for tables in declared_tables(connection, topology):
        try:
            if tables.keeps_staged_rows:
                merged += merge_tables_of(connection, tables)
            else:
                connection.run("drop_tables_left", topology=topology, state=tables.name)
        except RightMissing as error:  # another role owns the tables of this state
            logger.warning(
                "tables of %s wait for their owner's sweep: %s", tables.state.name, error
            )
    return merged


def merge_tables_of(connection: LedgerConnection, tables: StateTables, through: int = 0) -> int:
    """Merge the tables of a state up to a txid, and all but its newest; return how many.

    The rows below a view stay: a report's older snapshot would find them neither here nor there.

    :param through: merge all tables of txids up to this one
    :raises LedgerBusy: a reader held a table for too long
    """
    if not tables.keeps_contributions:
        return 0
    key = StateKey(tables.topology, tables.state.name)
    rows = connection.all("tables_to_merge", through=through, kept=KEPT_TABLES, **key)
    merged = 0
    for row in rows:
        with connection.transaction(patience=attempt_table.MERGE_PATIENCE_SECONDS) as tx:
            if attempt_table.claim(tx, tables.with_attempt_table(row["table_id"])):
                # an alteration that has ended meanwhile has given the tables other columns
                tx.run(tables.hold_contributions())
                if (now := _tables(tx, key)) is not None:
                    attempt_table.merge(tx, now.with_attempt_table(row["table_id"]))
                    merged += 1
    return merged
