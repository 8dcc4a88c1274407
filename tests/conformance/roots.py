"""Storm's roots as attempts: what the ledger has of them, and the messages about them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability import Count, State, Topology
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import AttemptFenced, ProcessFunctionFailed
from reliability.core.fold import Fold
from reliability.core.spout import AllocatedItems, Interval, SourceItem
from reliability.spouts.memory import MemorySlice
from reliability.states.kinds import stored_state
from reliability.transaction.emit.requests import Run
from reliability.transaction.process.attempt_messages import (
    declare_partitions,
    new_write_id,
    renew_lease,
)
from reliability.transaction.topology.lifecycle import declare
from tests.conformance.bench import Bench, stage, staged_row, start
from tests.conformance.comparison import Comparison
from tests.conformance.vectors import Vector
from tests.support.without_spark import WithoutSpark, never, unknown_of

LEASE_SECONDS = 3000
FAILED = ProcessFunctionFailed("a message of the vector")


@dataclass
class Source(WithoutSpark):
    """A spout with an item for each root, and the fold that the vector's init wants."""

    folds: list[Fold] = field(default_factory=list)

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        items = [
            MemorySlice(partition=root, offset=0, rows=fold.count)
            for root, fold in enumerate(self.folds)
        ]
        return unknown_of(items, allocated)

    def count(self, items: Any) -> Fold:
        return Fold.of(self.folds[item.partition] for item in items)


@dataclass
class Root:
    """What the ledger has of a root, and what of it was delivered.

    :param was_spoken_of: something was said of it before its init
    """

    grant: Grant
    init: int
    counted: bool
    was_spoken_of: bool = False
    write_id: str = field(default_factory=new_write_id)
    acks: list[int] = field(default_factory=list)
    is_live: bool = True
    lease_by_ack: bool = False
    had_late_messages: bool = False


class Roots:
    """The vector's topology, and its roots."""

    def __init__(self, bench: Bench, vector: Vector) -> None:
        self.bench = bench
        self.name = bench.name()
        self.source = Source()
        state = State("n", values={"n": Count()}, table=f"{self.name}_n")
        self.topology = Topology(
            self.name,
            spout=self.source,
            process=never,
            states=[state],
            max_spout_pending=len(vector.data["ops"]) + 1,
            lease_seconds=LEASE_SECONDS,
        )
        self.tables = stored_state(self.name, state)
        self.pipeline = bench.pipeline(self.topology)
        self.connection = self.pipeline.runner.connection
        declare(self.connection, self.topology)
        self.roots: dict[str, Root] = {}
        self.held: dict[str, list[Mapping[str, Any]]] = {}
        self.resent = vector.quirk is not None
        acks = [(str(op["root"]), op["val"]) for op in vector.data["ops"] if op["op"] == "ack"]
        self.distinct = {root: len({v for r, v in acks if r == root}) for root, _ in acks}

    # --- the ops ---------------------------------------------------------------------------------

    def init(self, root: str, val: int) -> None:
        """Grant: ack_val starts as what was emitted."""
        held = self.held.pop(root, [])
        if self.resent:
            count = self.distinct.get(root, 0)
        else:
            # One tuple, whose tree folds back to it: n = 1 on the first child, 0 on the others.
            count = 1 if val or any(op["op"] == "ack" for op in held) else 0
        self.source.folds.append(Fold(val, count))
        run = Run(dag_id=self.name, run_id=f"root {len(self.source.folds)}")
        self.pipeline.run = run
        [txid] = self.pipeline.emit(None)
        grant = self.pipeline.begin(txid)
        start(grant, self.connection)
        before = self.roots.get(root)
        was_spoken_of = bool(held) or (before is not None and before.had_late_messages)
        self.roots[root] = Root(grant, val, counted=count > 0, was_spoken_of=was_spoken_of)
        for op in held:
            self.deliver(root, op)

    def init_again(self, c: Comparison, root: str) -> None:
        """Storm's second init XORs itself away; here another task of the run asks for a begin."""
        known = self.roots[root]
        before = self.look()
        work = self.topology.work("commit")
        txid = known.grant.attempt.txid
        run_id = f"root {txid}"
        self.pipeline.run = Run(dag_id=self.name, run_id=run_id)
        request_id = self.pipeline.request(txid, "commit")
        granted = self.pipeline.runner.begin(txid, request_id, work)
        c.ours(granted is None and self.look() == before, "a second init changes nothing")

    def deliver(self, root: str, op: Mapping[str, Any]) -> bool:
        """Send a message about an attempt; say whether it changed anything."""
        known = self.roots[root]
        try:
            match op["op"]:
                case "ack":
                    self._ack(known, int(op["val"]))
                case "fail":
                    return self.pipeline.runner.end_attempt(known.grant, FAILED)
                case "reset_timeout":
                    renew_lease(self.connection, known.grant)
                    known.lease_by_ack = False
        except AttemptFenced:
            return False
        return True

    def _ack(self, root: Root, val: int) -> None:
        # A message that comes again is the same Spark task.
        is_again = self.resent and val in root.acks
        partition = root.acks.index(val) if is_again else len(root.acks)
        n = int(self.resent or (root.counted and partition == 0))
        row = staged_row(self.tables, root.grant, x=val, n=n)
        stage(self.connection, self.tables, root.grant, partition, [row], write_id=root.write_id)
        root.lease_by_ack = True
        if partition == len(root.acks):
            root.acks.append(val)

    def refuse(self, c: Comparison, op: Mapping[str, Any]) -> None:
        """A message about an attempt that is not there changes nothing."""
        attempt = TransactionAttempt(len(self.source.folds) + 1, 0)
        nobody = Grant(topology=self.name, attempt=attempt, nonce=str(uuid.uuid4()))
        before = self.look()
        root = Root(nobody, 0, counted=False)
        self.roots[""] = root
        changed = self.deliver("", op)
        del self.roots[""]
        c.ours(not changed and self.look() == before, "a message about no attempt changes nothing")

    def rotate(self) -> None:
        """Let a third of the lease pass, then sweep."""
        self.bench.run(
            "UPDATE reliability.attempt SET lease_until = lease_until - lease / 3"
            " WHERE topology = %(topology)s",
            topology=self.name,
        )
        self.pipeline.runner.sweep()

    # --- what can be seen ------------------------------------------------------------------------

    def look(self) -> dict[int, Any]:
        """Return each attempt's status, ack_val and unacked count."""
        rows = self.bench.all(
            "SELECT a.txid, a.status, s.ack_val, s.unacked, s.partitions,"
            " (SELECT count(*) FROM reliability.ack k WHERE k.topology = a.topology"
            " AND k.txid = a.txid) AS acks"
            " FROM reliability.attempt a JOIN reliability.sink s USING (topology, txid, attempt_id)"
            " WHERE a.topology = %(topology)s",
            topology=self.name,
        )
        return {row["txid"]: dict(row) for row in rows}

    def seal(self, root: Root) -> None:
        """The write has ended: declare its partitions, end the step, seal."""
        declare_partitions(self.connection, root.grant, self.tables.state.name, len(root.acks))
        self.pipeline.seal(root.grant)

    def settle(self) -> dict[str, str]:
        """Seal what is complete; return what became of the roots that were live until now."""
        emitted = {}
        found = self.look()
        for name, root in self.roots.items():
            if not root.is_live:
                continue
            row = found[root.grant.attempt.txid]
            if row["status"] == "FAILED":
                emitted[name] = "fail"
            elif row["status"] == "PROCESSING" and row["ack_val"] == row["unacked"] == 0:
                self.seal(root)
                emitted[name] = "ack"
            root.is_live = name not in emitted and row["status"] == "PROCESSING"
        return emitted
