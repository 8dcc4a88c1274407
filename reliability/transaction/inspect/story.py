"""The story of a txid: its batch, who asked for it, its attempts, and what each change did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import AttemptUnknown
from reliability.core.statement_key import TxidKey
from reliability.ledger.connection import LedgerConnection, Row
from reliability.transaction.inspect.txid_in_words import txid_with_state
from reliability.transaction.topology.databases import TopologyDatabases


def story_of_txid(connection: LedgerConnection, topology: str, txid: int) -> dict[str, Any]:
    """Return everything that the ledger has of a txid, as plain data.

    :raises AttemptUnknown: it was never emitted
    """
    key = TxidKey(topology, txid)
    found = _rows(connection, "transaction_details", **key)
    if not found:
        remedy = f"`reliability status` shows how many txids {topology} has emitted."
        raise AttemptUnknown(f"{topology} has no txid {txid}", remedy=remedy)
    changes = _rows(connection, "changes_of_txid", **key)
    with connection.transaction() as tx:
        _, state, why = txid_with_state(tx, topology, txid)
    return {
        "topology": topology,
        **found[0],
        "state": state,
        "why": why or None,
        "refreezes": _rows(connection, "refreezes_of_txid", **key),
        "corrections": _rows(connection, "corrections_of_txid", **key),
        "skips": _rows(connection, "skips_of_txid", **key),
        "exclusions": _rows(connection, "exclusions_of_txid", **key),
        "requests": _rows(connection, "requests_of_txid", **key),
        "attempts": [_named(r, txid) for r in _rows(connection, "attempts_of_txid", **key)],
        "changes": [_named(r, txid) for r in changes],
        "differences": [_named(r, txid) for r in _differences(connection, topology, txid, changes)],
        "lacking": [
            f"{row['state']}.{row['value']}"
            for row in _rows(connection, "values_without_txid", **key)
        ],
    }


def _differences(
    connection: LedgerConnection, topology: str, txid: int, changes: Sequence[Row]
) -> list[Any]:
    """Read them in the databases of their states, those of rollbacks and repairs too."""
    numbers = [row["commit_number"] for row in changes if row["attempt_id"] is None]
    with TopologyDatabases.of(connection, topology) as databases:
        found = databases.rows_of_all("differences_of_txid", **TxidKey(topology, txid))
        found += databases.rows_of_all(
            "differences_of_changes", topology=topology, commit_numbers=numbers
        )
    return sorted(
        found,
        key=lambda row: (
            row["attempt_id"] is None,
            row["attempt_id"] or row["commit_number"],
            row["state"],
        ),
    )


def _named(row: Any, txid: int) -> dict[str, Any]:
    """Format attempts as 7:2."""
    columns = {"attempt_id": "attempt", "replaced_attempt": "replaced"}
    return {
        columns.get(column, column): (
            str(TransactionAttempt(txid, value))
            if column in columns and value is not None
            else value
        )
        for column, value in row.items()
    }


def _rows(connection: LedgerConnection, statement: str, **parameters: object) -> list[Row]:
    with connection.transaction() as tx:
        return tx.all(statement, **parameters)
