"""What each kind of state runs on its tables, as SQL that can be read: docs/sql.

The files are generated from real commits, replays and rollbacks; WRITE_GOLDEN=1 writes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlparse
from psycopg2.sql import Composable

from reliability import Append, Avg, Count, Latest, Max, OpaqueState, State, Sum, TransactionalState
from reliability.core.plan import PlannedChange
from reliability.ledger.connection import DatabaseTransaction
from tests.support.fix_postgres import rolled_back
from tests.support.one_state import TOPOLOGY, OneState

FOLDER = Path(__file__).parents[2] / "docs" / "sql"
KEY = {"customer": "text"}
SUMS = {"orders": Count(), "revenue": Sum("price", "numeric(14,2)")}
OTHERS = {
    "dearest": Max("price", "numeric(14,2)"),
    "mean": Avg("price", "numeric(14,2)"),
    "status": Latest("status", {"price": "numeric(14,2)"}, "text"),
}
STATES: Mapping[str, State] = {
    "contribution": State("revenue", key=KEY, values=SUMS),
    "contribution_without_inverse": State("revenue", key=KEY, values=OTHERS),
    "opaque": OpaqueState("revenue", key=KEY, values=SUMS),
    "transactional": TransactionalState("revenue", key=KEY, values=SUMS),
    "append": State("revenue", key=KEY, values={"price": Append("price", "numeric(14,2)")}),
    "append_as_view": State(
        "revenue", key=KEY, values={"price": Append("price", "numeric(14,2)")}, as_view=True
    ),
}
ROWS = [
    {"customer": "ann", "price": 1, "status": "paid", "_x": 1},
    {"customer": "bob", "price": 2, "status": "open", "_x": 2},
]


class Recorded(DatabaseTransaction):
    """A transaction that writes down what it runs."""

    def __init__(self, tx: DatabaseTransaction) -> None:
        super().__init__(tx.cursor)
        self.statements: list[str] = []

    def queue(self, statement: str | Composable, **parameters: Any) -> None:
        if isinstance(statement, str):
            self.statements.append(f"-- the query {statement}")
        else:
            text = statement.as_string(self._cursor)
            self.statements.append(sqlparse.format(text, reindent=True) + ";")
        super().queue(statement, **parameters)

    def text(self) -> str:
        return "\n\n".join(self.statements) + "\n"


def commit(one: OneState) -> None:
    one.change(2, 0, None)


def replay(one: OneState) -> None:
    one.change(2, 1, 0)


def roll_back(one: OneState) -> None:
    key = PlannedChange(topology=TOPOLOGY, txid=1, commit_number=one.commit_number + 1)
    one.tables.roll_back(one.tx, key)


@pytest.mark.parametrize("kind", STATES)
def test_the_sql_of_a_change_is_what_the_docs_show(shared_connection, kind):
    with rolled_back(shared_connection) as tx:
        one = OneState(tx, STATES[kind])
        one.commit(ROWS)
        one.stage(2, 0, ROWS)
        for change in (commit, replay, roll_back) if kind != "transactional" else (commit,):
            one.tx = recorded = Recorded(tx)
            change(one)
            one.tx = tx
            if change is commit:
                one.stage(2, 1, ROWS[:1])
            golden = FOLDER / f"{kind}.{change.__name__}.sql"
            if os.environ.get("WRITE_GOLDEN"):
                golden.write_text(recorded.text())
            assert golden.read_text() == recorded.text(), "run this test with WRITE_GOLDEN=1"
