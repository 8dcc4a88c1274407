"""Compaction: fold contributions beyond a state's horizon to one row a key (H2).

1. read which states, in which databases, have a horizon
2. under the topology's lock, decide through which txid each of them compacts, and make it durable:
   from then on none of these txids can be replayed, in any database, and no rollback can go behind
   them
3. in each database, move their rows out of attempts' own tables
4. in each database, under the lock that its commits take, fold them: some txids per transaction

The next call completes what a dead process left unfinished. Compaction changes no row of a target,
and no result of a later replay or rollback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from reliability.core.errors import LedgerCorruption
from reliability.core.progress import UNSEEN, StateProgress
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection, Row
from reliability.ledger.locks import PATIENCE_SECONDS, holding
from reliability.states.compact_history import compact_history
from reliability.states.headers import check_headers
from reliability.states.tables import StateTables
from reliability.transaction.commit.saved_checkpoint import checkpoint_of
from reliability.transaction.maintain.merge import merge_tables_of
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables

# Rows that one transaction folds; it holds the topology's lock meanwhile.
MAX_ROWS = 1_000_000


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
    :raises LedgerBusy: another process held it for longer, or a reader held an attempt's own table
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
        for row in connection.all("state_details", topology=databases.topology)
        if (row["keep_txids"], row["keep_age"]) != (None, None)
    ]
    if not states:
        return []
    with holding(databases.coordinator, databases.topology, patience) as (tx, locked):
        if not checkpoint_of(locked).state.is_at_rest:
            return []
        horizons = [_horizon(tx, databases.topology, *state) for state in states]
        furthest = max(through for _, through in horizons)
        tx.run("decide_compaction", topology=databases.topology, through=furthest)
    return horizons


def _horizon(
    tx: DatabaseTransaction, topology: str, database: str, state: Row
) -> tuple[Compacted, int]:
    after = state["compacted_through"]
    row = tx.one("horizon", topology=topology, after=after, **state)
    now = Compacted(
        state=state["state"], database=database, through=after, held_up_by=row["held_up_by"]
    )
    return now, max(row["through"], after)  # it never decreases


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
    connection = databases.connection_of(compacted.database)
    key = StateKey(databases.topology, compacted.state)
    merge_tables_of(connection, _tables(connection, key), through)
    while compacted.through < through:
        with holding(connection, databases.topology, patience) as (tx, _):
            step = fold_step(tx, _tables(tx, key), through)
        if step is None:  # another process has folded them
            break
        compacted = replace(
            compacted,
            through=step.through,
            txids=compacted.txids + step.txids,
            rows_before=compacted.rows_before + step.rows_before,
            rows_after=compacted.rows_after + step.rows_after,
        )
    return compacted


def _tables(ledger: Ledger, key: StateKey) -> StateTables:
    return next(t for t in declared_tables(ledger, key.topology) if t.name == key.state)


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
