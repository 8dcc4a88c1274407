"""Verify the tables of a topology against its contributions, to detect foreign writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.checkpoint import COORDINATOR
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.states.headers import format_header, wrong_headers
from reliability.states.kinds import StoredState, stored_state
from reliability.states.tables import StateTables
from reliability.states.verify import compared, count_rows
from reliability.transaction.topology.databases import TopologyDatabases, naming_database
from reliability.transaction.topology.declare import declared_tables

if TYPE_CHECKING:
    from psycopg2.sql import Composed

MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A row that differs from its contributions.

    :param expected: the row by its contributions, None if there should be no row
    :param found: the row in the table, None if it is missing
    """

    key: Mapping[str, Any]
    expected: Mapping[str, Any] | None
    found: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result for one state's table; None means that it cannot be determined.

    :param rows: how many rows the table has
    :param missing: how many rows its contributions have and the table lacks, and so on
    :param examples: some of these rows
    :param headers: what is wrong with the record of its contributions
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
    is_exact: bool | None = field(init=False)

    def __post_init__(self) -> None:
        is_wrong = self.missing or self.surplus or self.different or self.headers
        is_exact = False if is_wrong else None if self.missing is None else True
        object.__setattr__(self, "is_exact", is_exact)


def verify(connection: LedgerConnection, topology: str) -> list[Verified]:
    """Compute every row of every state from the kept contributions, and compare.

    Each database is read in one snapshot, without blocking other sessions.
    """
    found: list[Verified] = []
    with TopologyDatabases.of_known(connection, topology) as participants:
        for database in participants.all:
            connection = participants.connection_of(database)
            with naming_database(database), connection.transaction(reads_only=True) as tx:
                tx.run("isolate_source")
                states = declared_tables(tx, topology)
                found += [verify_state(tx, tables, database) for tables in states]
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
        examples=tuple(_examples(tables, rows)),
    )


def _expected(tables: StateTables, row: Row) -> dict[str, Any]:
    """Return the expected row; sums are computed in numeric."""
    integers = {column.name for column in tables.columns if column.type == "bigint"}
    found = {name: row[f"expected {name}"] for name in compared(tables)}
    return {
        name: int(value) if name in integers and value is not None else value
        for name, value in found.items()
    }


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


def _examples(tables: StateTables, rows: Sequence[Row]) -> Iterator[Differing]:
    columns = compared(tables)
    for row in rows:
        if row["is_found"] is None:  # there are none
            continue
        yield Differing(
            key={name: row[f"key {name}"] for name in tables.state.key},
            expected=_expected(tables, row) if row["is_expected"] else None,
            found={c: row[f"found {c}"] for c in columns} if row["is_found"] else None,
        )
