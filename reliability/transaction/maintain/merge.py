"""Merge: move the rows of committed attempts' own tables to where the others are (H10).

A query of the contributions is planned with each table of an attempt, so only the newest stay. The
topology's lock is not needed: the rows that count are the same before and after.
"""

from __future__ import annotations

import logging

from reliability.core.errors import RightMissing, Transient
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import LedgerConnection
from reliability.states import attempt_table
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables

logger = logging.getLogger(__name__)

KEPT_TABLES = 16


def merge_tables(connection: LedgerConnection, topology: str) -> int:
    """Merge all but the newest tables of each state, and return how many; safe to repeat."""
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
            merged += merge_tables_of(connection, tables)
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
    return sum(_merge(connection, tables.with_attempt_table(row["table_id"])) for row in rows)


def _merge(connection: LedgerConnection, tables: StateTables) -> bool:
    with connection.transaction(patience=attempt_table.MERGE_PATIENCE_SECONDS) as tx:
        if not tx.first("claim_attempt_table", table_id=tables.attempt_table):
            return False
        attempt_table.merge(tx, tables)
    return True
