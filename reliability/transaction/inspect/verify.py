"""Verify the tables of a topology against its contributions, to detect foreign writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from reliability.core.attempt import TransactionAttempt
from reliability.core.checkpoint import COORDINATOR
from reliability.core.difference import Differing
from reliability.core.progress import UNSEEN, StateProgress
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.states.headers import format_header, wrong_headers
from reliability.states.kinds import StoredState, stored_state
from reliability.states.tables import StateTables
from reliability.states.verify_table import count_rows, examples
from reliability.transaction.topology.databases import TopologyDatabases, naming_database
from reliability.transaction.topology.declare import declared_tables

if TYPE_CHECKING:
    from psycopg2.sql import Composed

MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result for one state's table; None means that it cannot be determined.

    :param rows: how many rows the table has
    :param missing: how many rows its contributions have and the table lacks, and so on
    :param examples: some of these rows
    :param headers: what is wrong with the record of its contributions
    :param compares_values: False if only the number of each txid's rows can be compared
    :param is_exact: nothing is wrong, as far as that can be determined; None if it cannot
    """

    state: str
    database: str
    rows: int
    missing: int | None = None
    surplus: int | None = None
    different: int | None = None
    examples: tuple[Differing, ...] = ()
    headers: tuple[str, ...] = ()
    compares_values: bool = True
    is_exact: bool | None = field(init=False)

    def __post_init__(self) -> None:
        is_wrong = self.missing or self.surplus or self.different or self.headers
        is_exact = False if is_wrong else None if self.missing is None else True
        object.__setattr__(self, "is_exact", is_exact)


def verify(
    connection: LedgerConnection, topology: str, progress: StateProgress = UNSEEN
) -> list[Verified]:
    """Compute every row of every state from the kept contributions, and compare.

    Each database is read in one snapshot, without blocking other sessions. Before the snapshot, the
    contributions are locked: a merge between both would hide their rows from it (H10).
    """
    found: list[Verified] = []
    with TopologyDatabases.of_known(connection, topology) as participants:
        for database in participants.all:
            connection = participants.connection_of(database)
            with naming_database(database), connection.transaction(reads_only=True) as tx:
                known = declared_tables(tx, topology)
            with naming_database(database), connection.transaction(reads_only=True) as tx:
                tx.queue("isolate_source")
                for tables in known:
                    if tables.keeps_contributions:
                        tx.queue(tables.hold_contributions())
                states = declared_tables(tx, topology)
                progress.more(len(states))
                for tables in states:
                    progress.now(tables.state.name)
                    found.append(verify_state(tx, tables, database))
    return found


def verify_state(
    tx: DatabaseTransaction, tables: StateTables, database: str = COORDINATOR
) -> Verified:
    """Verify one state's table.

    Appended rows are their own contribution: only their number per txid can be compared.
    """
    verified = Verified(
        state=tables.state.name,
        database=database,
        rows=tx.one(count_rows(tables))["rows"],
        headers=tuple(_unrecorded(tx, tables)),
        compares_values=not tables.state.is_append,
    )
    state = stored_state(tables)
    if statement := state.differing_rows():
        verified = _with_rows(tx, tables, statement, verified)
    return _with_headers(tx, state, verified) if state.has_headers else verified


def _with_rows(
    tx: DatabaseTransaction, tables: StateTables, statement: Composed, verified: Verified
) -> Verified:
    rows = tx.all(statement, most=MAX_EXAMPLES)
    return replace(
        verified,
        missing=rows[0]["missing"],
        surplus=rows[0]["surplus"],
        different=rows[0]["different"],
        examples=tuple(examples(tables, rows)),
    )


def _with_headers(tx: DatabaseTransaction, state: StoredState, verified: Verified) -> Verified:
    wrong = wrong_headers(tx, state.tables)
    headers = (*verified.headers, *map(format_header, wrong))
    counted = state.missing_by_header(wrong)
    if counted is None:
        return replace(verified, headers=headers)
    missing, surplus = counted
    return replace(verified, headers=headers, missing=missing, surplus=surplus)


def _unrecorded(tx: DatabaseTransaction, tables: StateTables) -> Iterator[str]:
    key = StateKey(tables.topology, tables.state.name)
    for row in tx.all("txids_without_header", **key):
        attempt = TransactionAttempt(row["txid"], row["attempt_id"])
        yield f"attempt {attempt} has committed but is not recorded"
