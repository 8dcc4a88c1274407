"""Rows in quarantine, as a person exports, edits and corrects them."""

from __future__ import annotations

from typing import Any

from reliability.core.texts import as_exact_json, parse_exact
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.transaction.correct.quarantine import (
    EditedRow,
    check_correctable,
    edited_rows,
    exported,
    quarantined_rows,
    record_corrections,
)
from reliability.transaction.correct.replayable import Replayable

Line = dict[str, Any]


def lines(connection: LedgerConnection, topology: str) -> list[Line]:
    """Export the rows, as they are read again."""
    found = quarantined_rows(connection, topology, None)
    return [parse_exact(as_exact_json(exported(row))) for row in found]


def edit(line: Line, **values: Any) -> Line:
    return {**line, "values": {**line["values"], **values}}


def compare(connection: LedgerConnection, topology: str, *changed: Line) -> list[EditedRow]:
    """Compare edited lines, the first of which is line 1, with the rows that are there now."""
    found = quarantined_rows(connection, topology, None)
    return edited_rows(found, dict(enumerate(changed, 1)))


def correct(connection: LedgerConnection, topology: str, *changed: Line) -> None:
    edited = compare(connection, topology, *changed)
    replayable = Replayable.of(connection, topology)
    check_correctable(connection, replayable, edited)
    with connection.transaction() as tx:
        lock_topology(tx, topology)
        record_corrections(tx, replayable, edited, "a test", "ann")
