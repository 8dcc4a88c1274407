"""BatchBoltExecutor: what each attempt has accumulated is what it has staged.

`executes` and `execute` stage a row of an attempt, `finish` seals it. Compared: its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reliability import MemorySpout
from reliability.core.attempt import Grant
from reliability.core.errors import AttemptFenced, ReliabilityError
from reliability.transaction.process.attempt_messages import (
    declare_partitions,
    new_write_id,
    read_batch_meta,
)
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Rule, UnknownOp
from tests.conformance.counting import CountingWindow
from tests.conformance.vectors import Vector


class Accumulators(CountingWindow):
    """Attempts that stage rows one by one, in the transactions of Spark tasks."""

    def __init__(self, bench: Bench, named: Iterable[tuple[int, int]]) -> None:
        """Make a topology for these attempts; their numbers may start at 1."""
        self.first: dict[int, int] = {}
        for txid, number in named:
            self.first[txid] = min(number, self.first.get(txid, number))
        txids = max(self.first)
        spout = MemorySpout({"n": "bigint"}, [list(range(txids))], take=1)
        super().__init__(bench, spout, txids)
        self.pipeline.emit(None)
        self.granted: dict[str, Grant] = {}
        self.write_ids: dict[str, str] = {}
        self.partitions: dict[str, int] = {}

    def begin(self, attempt: str) -> None:
        """Grant attempts of the txid until there is one for each number."""
        txid, number = map(int, attempt.split(":"))
        for one in range(self.first[txid], number + 1):
            if (name := f"{txid}:{one}") not in self.granted:
                work = self.pipeline.work()
                request_id = self.pipeline.request(txid, work.task)
                assert self.pipeline.runner.begin(txid, request_id, work)
                self.granted[name] = self.pipeline.begin(txid)
                self.write_ids[name], self.partitions[name] = new_write_id(), 0

    def execute(self, attempt: str) -> bool:
        """Stage a row of an attempt; say whether it counts."""
        if attempt not in self.granted:
            self.begin(attempt)
        grant, partition = self.granted[attempt], self.partitions[attempt]
        emitted = read_batch_meta(self.connection, grant).emitted
        # one tuple that fans out: its share is whole in the first row
        x, n = (emitted.xor, emitted.count) if partition == 0 else (0, 0)
        try:
            self.stage(grant, x=x, n=n, partition=partition, write_id=self.write_ids[attempt])
        except AttemptFenced:
            return False
        self.partitions[attempt] += 1
        return True

    def finish(self, attempt: str) -> int | None:
        """Seal; return how many rows the attempt has, None if it cannot be sealed."""
        grant = self.granted[attempt]
        try:
            declare_partitions(self.connection, grant, self.state.name, self.partitions[attempt])
            self.pipeline.seal(grant)
        except ReliabilityError:
            return None
        rows = self.bench.all(
            f"SELECT count(*) AS rows FROM reliability_contribution.{self.name}__n"
            " WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s",
            txid=grant.attempt.txid,
            attempt_id=grant.attempt.attempt_id,
        )
        return int(rows[0]["rows"])


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    named = re.findall(r"(\d+):(\d+)", str(vector.data))
    played = Accumulators(bench, [(int(txid), int(number)) for txid, number in named])
    fenced: set[str] = set()
    for number, (op, value) in enumerate(vector.data.items()):
        if op in ("name", "source", "note", "upstream_quirk"):
            continue
        match = re.fullmatch(r"(?:then )?(?:execute (\S+), )?finish (\S+)", op)
        if op != "executes" and match is None:
            raise UnknownOp(f"op {number}: {op} is unknown")
        for attempt in [match[1]] if match else value:
            if attempt is not None and not played.execute(attempt):
                fenced.add(attempt)
        if match:
            c.at(number, "finish", fenced=match[2] in fenced or _is_old(played, match[2]))
            count = played.finish(match[2])
            found = [] if count is None else [[match[2], count]]
            c.field("emit", value["emit"], found, match[2])


def _is_old(played: Accumulators, attempt: str) -> bool:
    txid, number = map(int, attempt.split(":"))
    return any(
        int(other.split(":")[0]) == txid and int(other.split(":")[1]) > number
        for other in played.granted
    )


RULES = (
    Rule(
        "finish",
        "an attempt is fenced when a newer one of its txid is granted: nothing that it does counts "
        "from then on (G4)",
        lambda facts: facts["fenced"],
        field="emit",
    ),
)
