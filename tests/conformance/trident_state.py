"""Trident's states: TransactionalState and OpaqueState, as a commit applies them.

A batch is an attempt whose rows are staged one by one; what an update shows is the row after the
whole commit of what is staged so far, which is then rolled back. `commit` carries it out. A txid
that has committed already is a replay. A second `begin_commit` leaves a dead attempt behind. `get`
is the value on which the next update builds: the commit of a row that changes nothing.
`put` is the update that takes the key to the value. NonTransactionalMap, which the product does
not have, is the same statement without the check of the txid.

Compared: the value, and the stored row: value, previous value, txid; and errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from psycopg2.sql import SQL, Composed, Identifier, Placeholder

from reliability import Latest, MemorySpout, State, Sum, Topology
from reliability.core.errors import ReliabilityError
from reliability.core.plan import PlannedCommit
from reliability.core.state import OpaqueState, TransactionalState
from reliability.ledger.door import Row, Transaction
from reliability.states.first_commit import combine
from reliability.states.tables import TXID, StateTables, previous
from reliability.transaction.participant import rolled_back
from reliability.transaction.plan import carry_out
from reliability.transaction.topology import declare
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector

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


class Played:
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
        self.topology = Topology(self.name, spout=spout, process=_never, states=[self.state])
        self.tables = StateTables(self.name, self.state)
        self.door = bench.door
        declare(self.door, self.topology)
        self.batch: Batch | None = None
        self.committed: dict[int, set[str]] = {}
        self.crashed: set[str] = set()
        self.lost: set[str] = set()
        self._numbers = count(1)

    # --- the ledger's rows of a batch ------------------------------------------------------------

    def begin(self, txid: int | None) -> None:
        """Have a processed attempt of the txid, with nothing staged yet."""
        if self.batch is not None:
            self.crashed |= self.batch.keys
            self._end("FAILED")
        self.batch = Batch(txid)
        if txid is None or self.kind == "nontransactional":
            return
        with self.door.transaction() as tx:
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

    def stage(self, tx: Transaction, key: str, value: Any, at: int) -> None:
        """Stage one row."""
        assert self.batch is not None
        columns = self.tables.staged_columns()
        own = {"_txid": self.batch.txid, "_attempt_id": self.batch.attempt_id, "k": key}
        row = {**dict.fromkeys(columns, 1), **own, "value": value, "_value_by_1": at}
        insert = SQL("INSERT INTO {} ({}) VALUES ({})").format(
            self.tables.contribution,
            SQL(", ").join(map(Identifier, columns)),
            SQL(", ").join(map(Placeholder, columns)),
        )
        tx.run(insert, **row)
        tx.run(SQL(_COUNT_STAGED), topology=self.name, **own)

    def carry_out(self, tx: Transaction) -> None:
        """Do the whole commit of the batch, as far as it is staged."""
        assert self.batch is not None
        assert self.batch.txid is not None
        place = {"txid": self.batch.txid, "attempt_id": self.batch.attempt_id}
        if self.kind == "nontransactional":
            tx.run(_without_check(self.tables), **place)
            tx.run(self.tables.clean(), **place)
            return
        row = tx.one(SQL(_REACH), topology=self.name, txid=self.batch.txid)
        planned = PlannedCommit(
            commit_number=row["commit_number"] + 1,
            nonce=row["nonce"],
            replaced_attempt=self.batch.replaced,
            **place,
        )
        carry_out(tx, self.name, (planned,))

    # --- what the ops show -----------------------------------------------------------------------

    def row(self, key: str, tx: Transaction | None = None) -> Row | None:
        """Return the target's row of a key."""
        select = SQL("SELECT * FROM {} WHERE k = %(k)s").format(self.tables.target)
        if tx is not None:
            return tx.first(select, k=key)
        with self.door.transaction() as own:
            return own.first(select, k=key)

    @contextmanager
    def tried(self) -> Iterator[Transaction]:
        """A transaction in which the batch is committed, and that is rolled back."""
        with rolled_back(self.door) as tx:
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
        with self.door.transaction() as tx:
            self.stage(tx, key, value, next(self._numbers))
        self.batch.keys.add(key)

    def commit(self) -> None:
        """Commit the batch, if it is not refused."""
        batch = self.batch
        if batch is None or batch.txid is None:
            self.batch = None
            return
        try:
            with self.door.transaction() as tx:
                self.carry_out(tx)
        except ReliabilityError:
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
        insert = SQL("INSERT INTO {} ({}) VALUES ({})").format(
            self.tables.target,
            SQL(", ").join(map(Identifier, columns)),
            SQL(", ").join(map(Placeholder, columns)),
        )
        with self.door.transaction() as tx:
            tx.run(insert, **columns)
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


def _without_check(tables: StateTables) -> Composed:
    added = tables.folded_attempt("attempt_id")
    return SQL("WITH added AS MATERIALIZED ({}) {}").format(added, combine(tables))


def _never(*_: Any) -> dict[str, Any]:
    raise AssertionError("there is no Spark here")


# --- vectors of steps ----------------------------------------------------------------------------


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    kind, steps = vector.data["kind"], vector.steps
    if kind not in KINDS:
        raise Failed(f"unknown kind {kind}")
    played = Played(bench, kind, overwrites=_overwrites(steps))
    for number, step in enumerate(steps):
        _step(number, step, played, c)


def _overwrites(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the type of the values if they are put, None if they are added."""
    values = [step["value"] for step in steps if step["op"] == "put"]
    if not values or any(step["op"] == "update_add" for step in steps):
        return None
    return "bigint" if all(isinstance(value, int) for value in values) else "text"


def _step(number: int, step: Mapping[str, Any], played: Played, c: Comparison) -> None:
    op, expected = step["op"], step.get("expect", {})
    key, batch = step.get("key", ""), played.batch
    txid = batch.txid if batch else None
    last = max(played.committed, default=0)
    c.at(
        number,
        op,
        kind=played.kind,
        lost=key in played.lost,
        crashed=key in played.crashed,
        older=txid is not None and txid < last,
        replay=txid in played.committed,
        unseen=txid in played.committed and key not in played.committed[txid],
        untracked=batch is not None and txid is None,
    )
    match op:
        case "begin_commit":
            played.begin(step["txid"])
        case "commit":
            _commit(played, c)
        case "seed":
            played.seed(key, expected["stored"])
            c.field("stored", expected["stored"], played.stored(played.row(key)), key)
        case "get":
            _compare(c, played, key, expected, _get)
        case "update_add":
            _compare(c, played, key, expected, lambda p, k: _update(p, k, step["amount"]))
        case "put":
            _compare(c, played, key, expected, lambda p, k: _put(p, k, step["value"]))
        case _:
            raise UnknownOp(f"op {number}: {op} is unknown")


Shown = tuple[Any, Any]


def _compare(
    c: Comparison,
    played: Played,
    key: str,
    expected: Mapping[str, Any],
    act: Callable[[Played, str], Shown],
) -> None:
    before = played.row(key)
    try:
        value, stored = act(played, key)
        failed = False
    except ReliabilityError:
        value = stored = None
        failed = True
        c.ours(played.row(key) == before, "what is refused changes nothing")
    c.field("error", expected.get("error", False), failed, key)
    if expected.get("error") or failed:
        return
    if "value" in expected:
        c.field("value", expected["value"], value, key)
    c.field("stored", expected.get("stored", stored), stored, key)


def _get(played: Played, key: str) -> Shown:
    if played.batch is None or played.batch.txid is None or played.kind == "nontransactional":
        row = played.row(key)
        return (row and row["value"], played.stored(row))
    stored = played.stored(played.after(key) if key in played.batch.keys else played.row(key))
    if played.kind == "transactional" and not played.batch.keys:
        row = played.row(key)  # Trident asks no txid here
        return (row and row["value"], stored)
    return (played.base(key), stored)


def _update(played: Played, key: str, value: Any) -> Shown:
    if played.batch is None:
        raise Failed("an update outside of a batch")
    if played.batch.txid is None:
        _refuse_null(played)
    played.update(key, value)
    try:
        row = played.after(key)
    except ReliabilityError:
        if played.kind != "transactional":
            raise
        row = played.row(key)  # refused as a whole: what committed stays
    return (row and row["value"], played.stored(row))


def _refuse_null(played: Played) -> None:
    """Postgres refuses a batch without a txid."""
    with played.door.transaction() as tx:
        played.stage(tx, "", 0, OLDEST)


def _put(played: Played, key: str, value: Any) -> Shown:
    if played.overwrites:
        return _update(played, key, value if played.overwrites == "bigint" else str(value))
    try:
        base = _get(played, key)[0] or 0
    except ReliabilityError:
        base = 0
    return _update(played, key, value - base)


def _commit(played: Played, c: Comparison) -> None:
    batch = played.batch
    gone = set()
    if batch and batch.txid is not None and played.kind == "opaque":
        gone = played.committed.get(batch.txid, set()) - batch.keys
    before = {key: played.stored(played.row(key)) for key in gone}
    played.commit()
    for key, was in before.items():
        found = played.stored(played.row(key))
        c.ours((found and found["curr"]) == was["prev"], "a key that a replay lacks goes back")


# --- vectors of one op ---------------------------------------------------------------------------


def play_opaque_value(vector: Vector, c: Comparison, bench: Bench) -> None:
    data, expected = vector.data, vector.data["expect"]
    op, stored, txid = data["op"], data.get("stored"), data["batch_txid"]
    played = Played(bench, "opaque", overwrites="text")
    if stored is not None:
        played.seed("k", stored)
    last = max(played.committed, default=0)
    untracked, older = txid is None, txid is not None and txid < last
    c.at(0, op, kind="opaque", untracked=untracked, older=older, lost=False, crashed=False)
    played.begin(txid)
    if op not in ("OpaqueValue.get", "OpaqueValue.update"):
        raise UnknownOp(f"{op} is unknown")
    if op == "OpaqueValue.get":
        _compare(c, played, "k", expected, _get)
    else:
        wanted = expected if expected.get("error") else {"stored": dict(expected)}
        _compare(c, played, "k", wanted, lambda p, k: _update(p, k, data["new"]))
    played.commit()


ROTATING = (
    "Storm T12, RotatingTransactionalState, has no use: the metadata of a txid is a row of the "
    "ledger, BatchMeta, and stays"
)
ROTATING_OPS = ("get", "getorcreate", "cleanup", "override", "put", "remove")


def play_rotating(vector: Vector, c: Comparison, bench: Bench) -> None:
    for number, step in enumerate(vector.steps):
        if step["op"] not in ROTATING_OPS:
            raise UnknownOp(f"op {number}: {step['op']} is unknown")
    c.no_use(ROTATING)


REMOVE = "Storm O7: a state has no remove by key: a key goes when its last row goes"


def play_remove(vector: Vector, c: Comparison, bench: Bench) -> None:
    """Steps in words: `begin 2; remove a; get a=null; commit 2`."""
    played = Played(bench, "opaque", overwrites="bigint")
    texts = vector.data["memory_map_state_remove"]["steps"]
    words = [text.strip() for step in texts for text in step.split(";")]
    for number, word in enumerate(words):
        match = re.fullmatch(r"(begin|put|remove|get|commit) (.+?)(?: \(\w+\))?", word)
        if match is None:
            raise UnknownOp(f"op {number}: {word!r} is unknown")
        op, what = match.groups()
        c.at(number, op, kind="opaque", lost=False, crashed=False, older=False, untracked=False)
        for part in what.split(","):
            _word(op, part.strip(), played, c)


def _word(op: str, what: str, played: Played, c: Comparison) -> None:
    key, _, value = what.partition("=")
    match op:
        case "begin":
            played.begin(int(what))
        case "commit":
            played.commit()
        case "put":
            played.update(key, int(value))
        case "remove":
            c.no_use(REMOVE)
            c.carry(REMOVE, key)
        case "get":
            wanted = None if value == "null" else int(value)
            c.field("get", wanted, _get(played, key)[0], key)


RULES = (
    Rule(
        "update_add|put|OpaqueValue.update",
        "*",
        "Storm O1's null txid is for queries of DRPC, which have no use: every batch has a txid",
        lambda facts: facts["untracked"],
    ),
    Rule(
        "get|update_add|put",
        "*",
        "Storm O9 is a defect: a key that the replayed batch lacks keeps what the discarded one "
        "gave it; here it has its previous value again",
        lambda facts: facts["kind"] == "opaque" and facts["lost"],
    ),
    Rule(
        "update_add|put|get",
        "*",
        "Storm O3 is a defect: an older txid is applied, and moves the row's txid back; here it is "
        "refused",
        lambda facts: facts["kind"] == "transactional" and facts["older"],
    ),
    Rule(
        "put",
        "*",
        "Storm O3: multiPut writes whatever the txid is; here a txid is applied once",
        lambda facts: facts["kind"] == "transactional" and facts["replay"],
    ),
    Rule(
        "update_add",
        "*",
        "a txid is applied to all of its keys at once, and never a second time to others",
        lambda facts: facts["kind"] == "transactional" and facts["unseen"],
    ),
    Rule(
        "get|update_add|put",
        "*",
        "a commit is one Postgres transaction: one that was cut off leaves nothing behind",
        lambda facts: facts["crashed"],
    ),
)

ADAPTER = Adapter(
    component=r"OpaqueMap|TransactionalMap|OpaqueValue|RotatingTransactionalState",
    each={
        "vectors": play,
        "opaque_value_vectors": play_opaque_value,
        "rotating_state_vectors": play_rotating,
    },
    whole={"memory_map_state_remove": play_remove},
    rules=RULES,
)

_OPEN_BATCH = """
    INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
           verified, dag_id, run_id)
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
           verified, dag_id, run_id)
    VALUES (%(topology)s, %(txid)s, '[]', 0, 0, 'EXACT', 'd', 'r') ON CONFLICT DO NOTHING;
    INSERT INTO reliability.attempt (topology, txid, attempt_id, status, lease)
    VALUES (%(topology)s, %(txid)s, 0, 'COMMITTED', '1 min') ON CONFLICT DO NOTHING;
    UPDATE reliability.transaction
       SET committed_attempt = 0, commit_number = 0, committed_at = clock_timestamp()
     WHERE topology = %(topology)s AND txid = %(txid)s;
    INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
    VALUES (%(topology)s, 's', %(txid)s, 0, 'compacted', 1)
        ON CONFLICT (topology, state, txid) DO UPDATE SET rows = contribution.rows + 1"""
