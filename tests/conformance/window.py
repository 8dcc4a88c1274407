"""A topology's window, as its tasks see it: who begins, who commits, what fails.

Storm's coordinator holds this in memory and moves it by messages; here every answer is
next_action's, and every change one of the ledger's. What a process has in hand is all that is
lost when it dies.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from reliability import Topology
from reliability.core.attempt import Grant
from reliability.core.coordinator import Begin, Commit
from reliability.core.graph import THE_STEP
from reliability.transaction.commit.apply import AppliedPlan, RefusedPlan
from reliability.transaction.commit.committer import _refuse, committer, read_plan
from reliability.transaction.emit.requests import Run
from tests.conformance.bench import Bench

LIVE = ("PROCESSING", "SEALING", "PROCESSED")
_ALL = 10**9  # each first commit up to here is one physical commit

Attempt = tuple[int, int]
Emitted = list[list[Any]]


class Window:
    """One topology, and what its present processes have in hand."""

    def __init__(self, bench: Bench, topology: Topology) -> None:
        self.bench = bench
        self.name = topology.name
        self.runs = 0
        self.grants: dict[Attempt, Grant] = {}
        self.restart(topology)

    def restart(self, topology: Topology) -> None:
        """New processes, which know nothing but the ledger."""
        self.topology = topology
        self.pending = topology.max_spout_pending
        self.pipeline = self.bench.pipeline(topology)
        self.connection = self.pipeline.runner.connection
        self.in_hand: set[Attempt] = set()
        self.announced: set[Attempt] = set()

    # --- what can be seen ------------------------------------------------------------------------

    def look(self) -> dict[Attempt, dict[str, Any]]:
        """Return all attempts."""
        rows = self.bench.all(
            "SELECT a.txid, a.attempt_id, a.nonce::text, a.status, p.curr_txid,"
            " (SELECT count(*) FROM reliability.ack k WHERE k.topology = a.topology"
            " AND k.txid = a.txid AND k.attempt_id = a.attempt_id) AS acks"
            " FROM reliability.attempt a JOIN reliability.topology p USING (topology)"
            " WHERE topology = %(topology)s ORDER BY txid, attempt_id",
            topology=self.name,
        )
        return {(row["txid"], row["attempt_id"]): dict(row) for row in rows}

    def _of_topology(self, column: str) -> int:
        [row] = self.bench.all(
            f"SELECT {column} AS found FROM reliability.topology WHERE topology = %(topology)s",
            topology=self.name,
        )
        return int(row["found"])

    def curr_txid(self) -> int:
        return self._of_topology("curr_txid")

    def next_txid(self) -> int:
        return self._of_topology("next_txid")

    def status(self, attempt: Attempt) -> str:
        """Return the attempt's status in Storm's words, "" if it is not live."""
        found = self.look().get(attempt)
        if found is None or found["status"] not in LIVE:
            return ""
        return "COMMITTING" if attempt in self.announced else str(found["status"])

    def active(self) -> dict[str, list[Any]]:
        """Return the live attempts: txid -> [attempt, status]."""
        return {
            str(txid): [attempt_id, self.status((txid, attempt_id))]
            for (txid, attempt_id), row in self.look().items()
            if row["status"] in LIVE
        }

    def attempt_ids(self) -> dict[str, int]:
        """Return the newest attempt of each txid that has not committed."""
        curr = self.curr_txid()
        return {str(txid): attempt for (txid, attempt) in self.look() if txid >= curr}

    # --- what moves ------------------------------------------------------------------------------

    def sync(self) -> Emitted:
        """Say what may commit, then begin what may begin; one txid beyond the window is asked."""
        curr = self.curr_txid()
        window = range(curr, min(curr + self.pending + 1, self.next_txid()))
        committing = [e for txid in window if (e := self._commit_step(txid))]
        return committing + [e for txid in window if (e := self._begin_step(txid))]

    def emit_more(self) -> list[int]:
        """Let another run emit what is new."""
        self.runs += 1
        self.pipeline.run = Run(dag_id=self.name, run_id=f"run {self.runs}")
        return self.pipeline.emit(None)

    def _newest(self, txid: int) -> Attempt:
        """Return the txid's newest attempt, and go on for the run that emitted it."""
        [row] = self.bench.all(
            "SELECT run_id FROM reliability.transaction"
            " WHERE topology = %(topology)s AND txid = %(txid)s",
            topology=self.name,
            txid=txid,
        )
        self.pipeline.run = Run(dag_id=self.name, run_id=row["run_id"])
        return (txid, self.attempt_ids().get(str(txid), -1))

    def _commit_step(self, txid: int) -> list[Any] | None:
        newest = self._newest(txid)
        if newest in self.announced or self.status(newest) != "PROCESSED":
            return None
        request_id = self.pipeline.request(txid, "commit")
        action = self.pipeline.runner.next_action(txid, request_id, self.pipeline.work(None))
        if not isinstance(action, Commit):
            return None
        self.announced.add(newest)
        return ["$commit", *newest]

    def _begin_step(self, txid: int) -> list[Any] | None:
        newest = self._newest(txid)
        if newest in self.in_hand and self.status(newest):
            return None
        work = self.pipeline.work(THE_STEP)
        request_id = self.pipeline.request(txid, work.task)
        if not isinstance(self.pipeline.runner.next_action(txid, request_id, work), Begin):
            return None
        grant = self.pipeline.begin(txid)
        attempt = (txid, grant.attempt.attempt_id)
        self.grants[attempt] = grant
        self.in_hand.add(attempt)
        self.begun(grant)
        return ["$batch", *attempt]

    def begun(self, grant: Grant) -> None:
        """What is done at once with an attempt that was granted."""

    def commit_one(self) -> AppliedPlan | RefusedPlan | None:
        """Carry out one physical commit of one txid."""
        with committer(self.connection, self.name) as commit_change:
            return commit_change(partial(read_plan, self.name, one_by_one=_ALL))

    def refuse_one(self, table: str) -> None:
        """The data do not fit the target: the commit is refused, and its attempt fails."""
        self.bench.run(f"ALTER TABLE {table} ADD CONSTRAINT poor CHECK (false) NOT VALID")
        refused = self.commit_one()
        assert isinstance(refused, RefusedPlan)
        _refuse(self.connection, self.name, refused)
        self.bench.run(f"ALTER TABLE {table} DROP CONSTRAINT poor")
