"""One state and its commits, batch by batch, without the rest of a topology's life.

A batch is a processed attempt whose rows are staged one by one, under any txid that a vector
names. What its commit would leave can be looked at, because the whole commit can be carried out
and rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from psycopg2.sql import SQL, Composed

from reliability import Latest, MemorySpout, State, Sum, Topology
from reliability.core.difference import Difference
from reliability.core.errors import ReliabilityError
from reliability.core.plan import ChangeKind, PlannedChange
from reliability.core.state import OpaqueState, TransactionalState
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.states.kinds import StoredState, stored_state
from reliability.states.kinds.keyed import KeyedState
from reliability.states.kinds.opaque import previous
from reliability.states.tables import TXID, StateTables
from reliability.transaction.commit.apply import apply_plan
from reliability.transaction.commit.participant import rolled_back
from reliability.transaction.topology.lifecycle import declare
from tests.conformance.bench import Bench
from tests.support.fix_postgres import insert
from tests.support.without_spark import never

KINDS: Mapping[str, type[State]] = {
    "opaque": OpaqueState,
    "transactional": TransactionalState,
    "nontransactional": State,
}
OLDEST = -1  # `by` of a row that wins over nothing
SEEDED = 0


@dataclass
class Batch:
    """What is staged under a txid, None if the vector has none."""

    txid: int | None
    attempt_id: int = 0
    replaced: int | None = None
    keys: set[str] = field(default_factory=set)
    rows: int = 0


class OneState:
    """One state of the vector's kind, in a topology of its own."""

    def __init__(self, bench: Bench, kind: str, *, overwrites: str | None) -> None:
        """Make it; a state that `overwrites` holds values of that type, another one sums."""
        self.bench, self.kind = bench, kind
        self.name = bench.name()
        value = Latest("v", by={"at": "bigint"}, type=overwrites) if overwrites else Sum("v")
        self.state = KINDS[kind](
            "s", key={"k": "text"}, values={"value": value}, table=f"{self.name}_s"
        )
        self.overwrites = overwrites
        spout = MemorySpout({"n": "bigint"}, [[]], take=1)
        self.topology = Topology(self.name, spout=spout, process=never, states=[self.state])
        self.tables = stored_state(self.name, self.state)
        self.connection = bench.connection
        declare(self.connection, self.topology)
        self.batch: Batch | None = None
        self.committed: dict[int, set[str]] = {}
        self.crashed: set[str] = set()
        self.lost: set[str] = set()
        self.refused: set[str] = set()
        self._numbers = count(1)

    # --- the ledger's rows of a batch ------------------------------------------------------------

    def begin(self, txid: int | None) -> None:
        """Have a processed attempt of the txid, with nothing staged yet."""
        if self.batch is not None:
            self.crashed |= self.batch.keys
            self._end("FAILED")
            with self.connection.transaction() as tx:
                place: dict[str, Any] = {
                    "txid": self.batch.txid,
                    "attempt_id": self.batch.attempt_id,
                }
                tx.run(self.tables.clean(), **place)
        self.batch = Batch(txid)
        if txid is None or self.kind == "nontransactional":
            return
        with self.connection.transaction() as tx:
            row = tx.one(SQL(_OPEN_BATCH), topology=self.name, txid=txid)
        self.batch = Batch(txid, row["attempt_id"], row["committed_attempt"])

    def _end(self, status: str) -> None:
        assert self.batch is not None
        self.bench.run(
            "UPDATE reliability.attempt SET status = %(status)s, ended_at = clock_timestamp(),"
            " reason_code = 'PROCESS_FUNCTION_FAILED', reason = 'the vector'"
            " WHERE topology = %(topology)s AND txid = %(txid)s AND status = 'PROCESSED'",
            status=status,
            topology=self.name,
            txid=self.batch.txid,
        )

    def stage(self, tx: DatabaseTransaction, key: str, value: Any, at: int) -> None:
        """Stage one row."""
        assert self.batch is not None
        columns = self.tables.contribution_columns()
        own = {"_txid": self.batch.txid, "_attempt_id": self.batch.attempt_id, "k": key}
        given = {**dict.fromkeys(columns, 1), **own, "value": value, "_value_by_1": at}
        insert(tx, self.tables.contribution, {name: given[name] for name in columns})
        tx.run(SQL(_COUNT_STAGED), topology=self.name, **own)

    def carry_out(self, tx: DatabaseTransaction) -> None:
        """Do the whole commit of the batch, as far as it is staged."""
        assert self.batch is not None
        assert self.batch.txid is not None
        place: dict[str, Any] = {"txid": self.batch.txid, "attempt_id": self.batch.attempt_id}
        if self.kind == "nontransactional":
            tx.run(without_check(self.tables), **place)
            tx.run(self.tables.clean(), **place)
            return
        row = tx.one(SQL(_REACH), topology=self.name, txid=self.batch.txid)
        replaced = self.batch.replaced
        planned = PlannedChange(
            topology=self.name,
            kind=ChangeKind.COMMIT if replaced is None else ChangeKind.REPLAY,
            commit_number=row["commit_number"] + 1,
            nonce=row["nonce"],
            replaced_attempt=replaced,
            **place,
        )
        apply_plan(tx, self.name, (planned,))

    # --- what the ops show -----------------------------------------------------------------------

    def row(self, key: str, tx: DatabaseTransaction | None = None) -> Row | None:
        """Return the target's row of a key."""
        select = SQL("SELECT * FROM {} WHERE k = %(k)s").format(self.tables.target)
        if tx is not None:
            return tx.first(select, k=key)
        with self.connection.transaction() as own:
            return own.first(select, k=key)

    @contextmanager
    def tried(self) -> Iterator[DatabaseTransaction]:
        """A transaction in which the batch is committed, and that is rolled back."""
        with rolled_back(self.connection) as tx:
            yield tx

    def after(self, key: str) -> Row | None:
        """Return the row as the commit of what is staged would leave it."""
        with self.tried() as tx:
            self.carry_out(tx)
            row = self.row(key, tx)
        return row

    def base(self, key: str) -> Any:
        """Return the value on which an update builds: what a row that changes nothing leaves."""
        nothing = {"text": "", "bigint": 0}.get(self.overwrites or "", 0)
        with self.tried() as tx:
            self.stage(tx, key, nothing, OLDEST)
            self.carry_out(tx)
            row = self.row(key, tx)
        assert row is not None
        return None if row["_rows"] == 1 else row["value"]

    def update(self, key: str, value: Any) -> None:
        """Stage one update."""
        assert self.batch is not None
        with self.connection.transaction() as tx:
            self.stage(tx, key, value, next(self._numbers))
        self.batch.keys.add(key)

    def commit(self) -> None:
        """Commit the batch, if it is not refused."""
        batch = self.batch
        if batch is None or batch.txid is None:
            self.batch = None
            return
        try:
            with self.connection.transaction() as tx:
                self.carry_out(tx)
        except ReliabilityError:
            self.refused |= batch.keys
            self._end("FAILED")
        else:
            self.lost |= self.committed.get(batch.txid, set()) - batch.keys
            self.committed[batch.txid] = batch.keys
        self.batch = None

    def seed(self, key: str, stored: Any) -> None:
        """Have a row there, of a txid that has committed."""
        row = stored if isinstance(stored, dict) else {"val": stored, "txid": 1}
        values = {"value": row.get("curr", row.get("val")), "_txid": row["txid"]}
        columns = {**self._counts(2 if row.get("prev") is not None else 1), "k": key, **values}
        if row.get("prev") is not None:
            before = {**self._counts(1), "value": row["prev"], TXID: row["txid"] - 1}
            columns |= {previous(name): value for name, value in before.items()}
        with self.connection.transaction() as tx:
            insert(tx, self.tables.target, columns)
            if self.kind != "nontransactional":
                tx.run(SQL(_SEED), topology=self.name, txid=row["txid"])
        self.committed.setdefault(row["txid"], set()).add(key)

    def _counts(self, rows: int) -> dict[str, int]:
        hidden = {"_rows": rows, "_value_count": rows, "_value_by_1": SEEDED, "_value_tuple": 0}
        return {name: hidden[name] for name in hidden if name in self.tables.column_types()}

    def stored(self, row: Row | None) -> Any:
        """Return a row as the vectors write it."""
        if row is None:
            return None
        if self.kind == "opaque":
            return {"curr": row["value"], "prev": row[previous("value")], "txid": row[TXID]}
        if self.kind == "transactional":
            return {"val": row["value"], "txid": row[TXID]}
        return row["value"]


def without_check(tables: StateTables) -> Composed:
    added = tables.folded_attempt()
    assert isinstance(tables, KeyedState)
    return tables.combine(added)


_OPEN_BATCH = """
    INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
           verdict, dag_id, run_id)
    VALUES (%(topology)s, %(txid)s, '[]', 0, 0, 'EXACT', 'd', 'r') ON CONFLICT DO NOTHING;
    INSERT INTO reliability.attempt (topology, txid, attempt_id, status, lease, processed_at)
    SELECT %(topology)s, %(txid)s, count(*), 'PROCESSED', '1 min', clock_timestamp()
      FROM reliability.attempt WHERE topology = %(topology)s AND txid = %(txid)s;
    INSERT INTO reliability.sink (topology, txid, attempt_id, step, sink, ack_val, unacked,
           staged_rows)
    SELECT topology, txid, max(attempt_id), 'process', 's', 0, 0, 0 FROM reliability.attempt
     WHERE topology = %(topology)s AND txid = %(txid)s GROUP BY topology, txid;
    SELECT a.attempt_id, t.committed_attempt FROM reliability.transaction t
      JOIN reliability.attempt a USING (topology, txid)
     WHERE topology = %(topology)s AND txid = %(txid)s AND a.status = 'PROCESSED'"""
_COUNT_STAGED = """
    UPDATE reliability.sink SET staged_rows = staged_rows + 1
     WHERE topology = %(topology)s AND txid = %(_txid)s AND attempt_id = %(_attempt_id)s"""
_REACH = """
    UPDATE reliability.topology
       SET next_txid = greatest(next_txid, %(txid)s + 1), curr_txid = greatest(curr_txid, %(txid)s)
     WHERE topology = %(topology)s;
    SELECT p.commit_number, a.nonce::text AS nonce FROM reliability.topology p
      JOIN reliability.attempt a USING (topology)
     WHERE topology = %(topology)s AND a.txid = %(txid)s AND a.status = 'PROCESSED'"""
_SEED = """
    INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
           verdict, dag_id, run_id)
    VALUES (%(topology)s, %(txid)s, '[]', 0, 0, 'EXACT', 'd', 'r') ON CONFLICT DO NOTHING;
    INSERT INTO reliability.attempt (topology, txid, attempt_id, status, lease)
    VALUES (%(topology)s, %(txid)s, 0, 'COMMITTED', '1 min') ON CONFLICT DO NOTHING;
    UPDATE reliability.transaction
       SET committed_attempt = 0, commit_number = 0, committed_at = clock_timestamp()
     WHERE topology = %(topology)s AND txid = %(txid)s;
    INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
    VALUES (%(topology)s, 's', %(txid)s, 0, 'compacted', 1)
        ON CONFLICT (topology, state, txid) DO UPDATE SET rows = contribution.rows + 1"""


def apply_again(
    state: StoredState, tx: DatabaseTransaction, key: PlannedChange, observer: object = None
) -> Difference:
    """Stand in for a replay that adds the contribution without taking out the old one."""
    key = key.of_state(state.name)
    tx.one("advance_state", changes=1, **key)
    tx.run(without_check(state), **key)
    return Difference(state=state.name)
