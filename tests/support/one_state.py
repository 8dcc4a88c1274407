"""One state of one topology inside one transaction: commits and replays without Spark or Airflow.

Rows are staged by INSERT; what happens to them then is the product's own code of a commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg2
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Identifier

from reliability import Append, Avg, Count, First, Max, Min, State, Sum, Upsert
from reliability.core.aggregators import winning_row
from reliability.core.column import hidden
from reliability.core.difference import Difference
from reliability.core.plan import PlannedChange
from reliability.ledger.connection import DatabaseTransaction
from reliability.ledger.failures import translate
from reliability.states.kinds import stored_state
from reliability.states.kinds.stored import DifferenceObserver
from reliability.states.tables import SINGLE_ROW_KEY
from reliability.transaction.topology.declare import init_states

TOPOLOGY = "one"
ATTEMPT = SQL("""
    INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
                                         verdict, dag_id, run_id)
    VALUES (%(topology)s, %(txid)s, '[]', 0, 0, 'EXACT', 'd', 'r') ON CONFLICT DO NOTHING;
    INSERT INTO reliability.attempt (topology, txid, attempt_id, status, lease)
    VALUES (%(topology)s, %(txid)s, %(attempt_id)s, 'REPLACED', '0');
    INSERT INTO reliability.sink (topology, txid, attempt_id, step, sink, ack_val, unacked,
                                  staged_rows)
    VALUES (%(topology)s, %(txid)s, %(attempt_id)s, 'process', %(sink)s, 0, 0, %(staged_rows)s)
""")
Row = Mapping[str, Any]


class OneState:
    """A declared state, and the txids that committed into it.

    A row is a source row: its columns by name, and `_x`, its tuple id.
    """

    def __init__(self, tx: DatabaseTransaction, state: State) -> None:
        self.tx = tx
        self.state = state
        self.tables = stored_state(TOPOLOGY, state)
        self.attempts: dict[int, int] = {}
        self.commit_number = 0
        self.observer: DifferenceObserver | None = None
        topology = (
            "INSERT INTO reliability.topology (topology, max_spout_pending) VALUES (%(t)s, 1)"
        )
        tx.run(SQL(topology), t=TOPOLOGY)
        init_states(tx, TOPOLOGY, [self.tables])

    # --- what a pipeline does --------------------------------------------------------------------

    def commit(self, rows: Sequence[Row], parts: int = 1) -> int:
        """Process and commit the next txid; its rows are reduced in so many parts."""
        txid = max(self.attempts, default=0) + 1
        self.stage(txid, 0, rows, parts)
        self.change(txid, 0, None)
        return txid

    def replay(self, txid: int, rows: Sequence[Row], parts: int = 1) -> Difference | None:
        """Process a committed txid again, and put the new contribution in the old one's place."""
        replaced = self.attempts[txid]
        self.stage(txid, replaced + 1, rows, parts)
        return self.change(txid, replaced + 1, replaced)

    def stage(self, txid: int, attempt_id: int, rows: Sequence[Row], parts: int = 1) -> None:
        staged = [
            staged_row | {"_txid": txid, "_attempt_id": attempt_id}
            for part in range(parts)
            for staged_row in reduce_rows(self.state, rows[part::parts])
        ]
        self.make_attempt(txid, attempt_id, len(staged))
        if staged:
            columns = self.tables.contribution_columns()
            types = self.tables.column_types()
            execute_values(
                self.tx.cursor,
                SQL("INSERT INTO {} ({}) VALUES %s").format(
                    self.tables.contribution, SQL(", ").join(map(Identifier, columns))
                ),
                [[row[column] for column in columns] for row in staged],
                template="({})".format(
                    ", ".join(f"CAST(%s AS {types[c]})" if c in types else "%s" for c in columns)
                ),
            )

    def make_attempt(self, txid: int, attempt_id: int, staged_rows: int) -> None:
        self.tx.run(
            ATTEMPT,
            topology=TOPOLOGY,
            txid=txid,
            attempt_id=attempt_id,
            sink=self.state.name,
            staged_rows=staged_rows,
        )

    def change(self, txid: int, attempt_id: int, replaced: int | None) -> Difference | None:
        """Do what a commit does to the state; tell what a replay changed."""
        key = PlannedChange(
            topology=TOPOLOGY,
            txid=txid,
            attempt_id=attempt_id,
            replaced_attempt=replaced,
            commit_number=self.commit_number + 1,
        )
        state = self.tables
        difference = None
        try:
            if replaced is None:
                state.commit(self.tx, key)
            else:
                difference = state.replay(self.tx, key, self.observer)
            self.tx.send_queued()
        except psycopg2.Error as error:
            raise translate(error) from error
        self.attempts[txid] = attempt_id
        self.commit_number += 1
        return difference

    # --- what there is ---------------------------------------------------------------------------

    def contents(self) -> list[dict[str, Any]]:
        """Return the target's rows without what an OpaqueState remembers, in a fixed order."""
        found = self.tx.all(SQL("SELECT * FROM {}").format(self.tables.target))
        return in_fixed_order(
            {name: value for name, value in row.items() if not name.endswith("_previous")}
            for row in found
        )

    def select(self, columns: str) -> list[tuple[Any, ...]]:
        """Return columns of the target, ordered by them."""
        statement = f"SELECT {columns} FROM {{}} ORDER BY {columns}"
        return [
            tuple(row.values()) for row in self.tx.all(SQL(statement).format(self.tables.target))
        ]

    def staged(self) -> list[tuple[int, int]]:
        """Return (txid, attempt) of what lies in the contributions' table."""
        statement = "SELECT DISTINCT _txid, _attempt_id FROM {} ORDER BY 1, 2"
        found = self.tx.all(SQL(statement).format(self.tables.contribution))
        return [tuple(row.values()) for row in found]

    def headers(self) -> list[tuple[int, str, int]]:
        """Return txid, presence and rows of every contribution."""
        statement = "SELECT txid, presence, rows FROM reliability.contribution ORDER BY txid"
        return [tuple(row.values()) for row in self.tx.all(SQL(statement))]


def in_fixed_order(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Sort rows of any values."""
    return sorted((dict(row) for row in rows), key=lambda row: json.dumps(row, default=repr))


# --- what the aggregators mean, in Python --------------------------------------------------------


def reduce_rows(state: State, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Reduce source rows as Spark does: a staged row a key, or a row each for Append."""
    if state.is_append:
        return [_reduced(state, [row]) for row in rows]
    keys = {tuple(row[name] for name in state.key) for row in rows}
    return [
        _reduced(state, [r for r in rows if tuple(r[name] for name in state.key) == key])
        for key in keys
    ]


def _reduced(state: State, rows: Sequence[Row]) -> dict[str, Any]:
    found = {name: rows[0][name] for name in state.key}
    if not state.key and not state.is_append:
        found[SINGLE_ROW_KEY] = True
    for name, value in state.values.items():
        found |= stored(name, value, rows)
    xor = 0
    for row in rows:
        xor ^= row["_x"]
    return found | {"_rows": len(rows), "_x": xor, "_n": len(rows)}


def stored(name: str, value: Any, rows: Sequence[Row]) -> dict[str, Any]:
    """Return what the columns of one value hold after these rows, in whatever order they came."""
    if isinstance(value, Append):
        return {name: rows[0][value.column]}
    if isinstance(value, Count):
        return {name: len(rows) if value.column is None else len(_known(value.column, rows))}
    if hasattr(value, "by"):
        return _winner(name, value, rows)
    known = _known(value.column, rows)
    if isinstance(value, Min | Max):
        pick = min if isinstance(value, Min) else max
        return {name: pick(known, key=_comparable, default=None)}
    assert isinstance(value, Sum | Avg)
    total = name if isinstance(value, Sum) else hidden(name, "sum")
    return {total: sum(known) if known else None, hidden(name, "count"): len(known)}


def _known(column: str, rows: Sequence[Row]) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _comparable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _winner(name: str, value: Any, rows: Sequence[Row]) -> dict[str, Any]:
    is_first = isinstance(value, First)

    def rank(row: Row) -> tuple[Any, ...]:
        by = [(row[c] is not None, 0 if row[c] is None else _comparable(row[c])) for c in value.by]
        is_complete = all(known for known, _ in by)
        if is_first:  # NULL is the last choice here too
            by = [(not known, of) for known, of in by]
        return (is_complete != is_first, *by, row.get("_txid", 0), row["_x"])

    row = (min if is_first else max)(rows, key=rank)
    of = "" if isinstance(value, Upsert) else name
    columns = [c.name for c in winning_row({name: value}, of=of, least=is_first)]
    values = [row[value.column], *(row[c] for c in value.by), row["_x"]]
    return dict(zip(columns, values, strict=True))
