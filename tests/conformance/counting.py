"""A window whose batches are staged without Spark: one state, and one row for each attempt.

What the adapters of both coordinators share: how a batch is acked and failed, what of the fields
is compared txid by txid, and what holds in any history.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from reliability import Count, State, Topology
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import AttemptFenced, ProcessFunctionFailed, ReliabilityError
from reliability.core.graph import THE_STEP
from reliability.core.spout import Spout
from reliability.states.kinds import stored_state
from reliability.transaction.commit.apply import AppliedPlan
from reliability.transaction.process.attempt_messages import (
    declare_partitions,
    new_write_id,
    read_batch_meta,
)
from tests.conformance.bench import Bench, stage, staged_row, start
from tests.conformance.comparison import Comparison, Rule
from tests.conformance.window import Attempt, Emitted, Window
from tests.support.without_spark import never

FAILED = ProcessFunctionFailed("a message of the vector")


class CountingWindow(Window):
    """A topology that counts rows, and which attempts the present processes have in hand."""

    def __init__(self, bench: Bench, spout: Spout, pending: int | None) -> None:
        """Make it; without a number of pending txids it has the product's default."""
        self.spout = spout
        name = bench.name()
        self.state = State("n", key={"k": "bigint"}, values={"n": Count()}, table=f"{name}_n")
        self.tables = stored_state(name, self.state)
        super().__init__(bench, self.topology_of(name, pending))

    def topology_of(self, name: str, pending: int | None) -> Topology:
        """Return the topology as code with that window has it."""
        window: dict[str, Any] = {} if pending is None else {"max_spout_pending": pending}
        return Topology(name, spout=self.spout, process=never, states=[self.state], **window)

    def begun(self, grant: Grant) -> None:
        start(grant, self.connection)

    # --- messages about an attempt ---------------------------------------------------------------

    def stage(
        self, grant: Grant, *, x: int, n: int, partition: int = 0, write_id: str = ""
    ) -> None:
        """Stage a row, in the transaction of a Spark task of the attempt's."""
        row = staged_row(self.tables, grant, x=x, n=n)
        write_id = write_id or new_write_id()
        stage(self.connection, self.tables, grant, partition, [row], write_id=write_id)

    def ack_processing(self, attempt: Attempt) -> None:
        """Stage the attempt's row, end its step and seal it."""
        grant = self.grants[attempt]
        emitted = read_batch_meta(self.connection, grant).emitted
        self.stage(grant, x=emitted.xor, n=emitted.count)
        declare_partitions(self.connection, grant, self.tables.state.name, 1)
        self.pipeline.seal(grant)

    def ack_commit(self, c: Comparison) -> None:
        """Commit the txid whose turn it is."""
        outcome = self.commit_one()
        went_through = isinstance(outcome, AppliedPlan) and len(outcome.plan) == 1
        c.ours(went_through, "the commit goes through")

    def late_ack(self, c: Comparison, attempt: Attempt | None) -> None:
        """Let what is no live attempt stage a row and seal; None for one that never was."""
        before = self.look()
        grant = self.grant_of(attempt)
        fenced = False
        try:
            self.stage(grant, x=1, n=1)
        except AttemptFenced:
            fenced = True
        with suppress(ReliabilityError):
            self.pipeline.runner.seal(grant, THE_STEP)
        c.ours(fenced and self.look() == before, "a late or second ack changes nothing")

    def fail_attempt(self, c: Comparison, attempt: Attempt | None) -> None:
        """Fail an attempt, by its own commit if it is its turn."""
        status, before = self.status(attempt) if attempt else "", self.look()
        if status == "COMMITTING":
            self.refuse_one(self.tables.target_name)
            return
        ended = self.pipeline.runner.end_attempt(self.grant_of(attempt), FAILED)
        if status != "PROCESSING":
            c.ours(not ended and self.look() == before, "a late fail changes nothing")

    def grant_of(self, attempt: Attempt | None) -> Grant:
        """Return the attempt's grant, or one that nobody was given."""
        place = attempt or (self.next_txid(), 0)
        nobody = Grant(
            topology=self.name, attempt=TransactionAttempt(*place), nonce=str(uuid.uuid4())
        )
        return self.grants.get(place, nobody)


# --- comparing -----------------------------------------------------------------------------------

Facts = Callable[[int], Mapping[str, Any]]


def no_facts(_: int) -> Mapping[str, Any]:
    """There is nothing more to say of a txid."""
    return {}


Sent = Sequence[tuple[str, int]]


def sent(emitted: Emitted) -> list[tuple[str, int]]:
    """Return the stream and the txid of what is emitted, [stream, txid, attempt id]."""
    return [(stream, txid) for stream, txid, _ in emitted]


def compare_emitted(c: Comparison, expected: Sent, found: Sent, facts_of: Facts = no_facts) -> None:
    """Compare what is sent of each txid, (stream, txid), and the order of what both send."""
    for txid in sorted({txid for _, txid in [*expected, *found]}):
        wanted, seen = _of(expected, txid), _of(found, txid)
        c.field("emit", wanted, seen, scope=txid, **facts_of(txid))
    c.field("order", _those_of(expected, found), _those_of(found, expected))


def _those_of(sent: Sent, other: Sent) -> Sent:
    return [one for one in sent if one in other]


def _of(sent: Sent, txid: int) -> list[str]:
    return [stream for stream, of in sent if of == txid]


def compare_by_txid(
    c: Comparison,
    name: str,
    expected: Mapping[str, Any],
    found: Mapping[str, Any],
    facts_of: Facts = no_facts,
) -> None:
    """Compare a field that has a value for each txid: a difference stays with its txid."""
    for txid in sorted({*expected, *found}, key=int):
        wanted, seen = expected.get(txid), found.get(txid)
        c.field(name, wanted, seen, scope=int(txid), **facts_of(int(txid)))


def compare_attempt_ids(
    c: Comparison, name: str, expected: Mapping[str, int], found: Mapping[str, int]
) -> None:
    """Compare the attempt ids of txids: where they differ, nothing else does with them."""
    for txid in sorted({*expected, *found}, key=int):
        c.field(name, expected.get(txid), found.get(txid), scope=f"attempt ids of {txid}")


def check_history(c: Comparison, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    """State what holds in any history of ours."""
    txids = {txid for txid, _ in after}
    for txid in txids:
        ids = [attempt_id for known, attempt_id in after if known == txid]
        c.ours(ids == list(range(len(ids))), "attempt ids rise by one and are never used again")
    c.ours(
        all(after[key]["nonce"] == row["nonce"] for key, row in before.items()),
        "an attempt stays what it was granted as",
    )
    committed = [txid for (txid, _), row in after.items() if row["status"] == "COMMITTED"]
    c.ours(committed == list(range(1, len(committed) + 1)), "txids commit in their order, once")


FAILS = (
    Rule(
        "fail",
        "Storm M8 is a defect: a fail removes whatever attempt is active and compares then; here a "
        "fail of another attempt changes nothing",
        lambda facts: facts["is_stale"],
        spreads=True,
    ),
    Rule(
        "fail",
        "a sealed attempt is failed by its own commit alone (A8): it lacks nothing",
        lambda facts: facts["is_sealed"],
        spreads=True,
    ),
)
