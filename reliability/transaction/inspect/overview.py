"""The position of every topology, what of it waits and why, and what needs a person: what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Any

from reliability.core.coordinator import Blocked, Wait, why_waits
from reliability.core.standing import Standing
from reliability.core.txids import format_ranges, format_txids, with_noun, with_verb
from reliability.core.waits import WaitsFor
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import AnswersOfTopology, ask_of_topologies, made_of
from reliability.transaction.inspect import intervals
from reliability.transaction.inspect.intervals import (
    NEED_A_PERSON,
    IntervalsReport,
    format_counts,
    report_intervals,
)
from reliability.transaction.topology.read_standing import find_standings

#: What is read of each topology, beside its position and its standing.
ASKED = (
    *("held_txids", "parked_txids", "skipped_txids", "excluded_items", "items_to_replay"),
    *("requested_replays", *intervals.ASKED),
)


class Condition(str, Enum):
    """What a topology is doing, the most urgent first."""

    HELD = "held"  # rolled back; a person must release it
    BLOCKED = "blocked"  # a txid that no run works on holds up all later ones
    PAUSED = "paused"
    LATE = "late"  # intervals lack a commit, and no run works on them
    WORKING = "working"
    UP_TO_DATE = "up to date"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Txids that wait for the same reason."""

    txids: str
    wait: Wait
    are_replays: bool

    def to_json(self) -> dict[str, Any]:
        reason, blocked = self.wait.reason, self.wait.blocked
        return {
            "txids": self.txids,
            "are_replays": self.are_replays,
            "for": reason.what.value,
            "behind": format_txids(reason.behind),
            "most": reason.most,
            "blocked": blocked and blocked.txid,
            "text": str(self),
        }

    def __str__(self) -> str:
        if self.are_replays:
            return f"the replay of {with_noun(self.txids)} waits {self.wait}"
        waits = "waits" if self.txids.isdigit() else "wait"
        return f"{with_noun(self.txids)} {waits} {self.wait}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The position of a topology.

    :param emitted: the last txid; 0 for none
    :param committed: the last txid that has committed in order; 0 for none
    :param window: the first txid that may be processed, and the first that may not
    :param lacking: the intervals that lack a commit
    :param replays: the committed txids whose replay waits
    """

    topology: str
    emitted: int
    committed: int
    window: tuple[int, int]
    processing: int
    processed: int
    commit_number: int
    checkpoint: str
    last_change_at: datetime | None
    oldest_uncommitted_at: datetime | None
    paused: str | None
    blocked: Blocked | None
    held: Sequence[Mapping[str, Any]]
    parked: Sequence[Mapping[str, Any]]
    skipped: Sequence[Mapping[str, Any]]
    excluded: Sequence[Row]
    to_replay: Sequence[Mapping[str, Any]]
    lacking: IntervalsReport
    replays: Mapping[int, Wait]

    def to_json(self) -> dict[str, Any]:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("window", "oldest_uncommitted_at", "lacking", "replays"):
            del own[name]
        if (blocked := self.blocked) is not None:
            facts = {field.name: getattr(blocked, field.name) for field in fields(blocked)}
            del facts["remedy"]
            todo = blocked.error().about(topology=self.topology).what_to_do
            own["blocked"] = {**facts, "todo": todo}
        return {
            **own,
            "waiting": self.waiting,
            "without_commit": self.lacking.counts,
            "expected_unknown": self.lacking.unknown,
        }

    @property
    def waiting(self) -> list[Waiting]:
        """Return the txids that wait, those with the same reason together."""
        alike: dict[tuple[bool, Wait], list[int]] = {}
        for report in self.lacking.reports:
            if report.wait is not None:
                alike.setdefault((False, report.wait), []).extend(report.txids)
        for txid, wait in self.replays.items():
            alike.setdefault((True, wait), []).append(txid)
        return [
            Waiting(txids=format_txids(txids), wait=wait, are_replays=are_replays)
            for (are_replays, wait), txids in alike.items()
        ]

    @property
    def condition(self) -> Condition:
        """Return the most urgent thing that can be said."""
        if self.held:
            return Condition.HELD
        if self.blocked is not None:
            return Condition.BLOCKED
        if self.paused is not None:
            return Condition.PAUSED
        if NEED_A_PERSON & self.lacking.counts.keys():
            return Condition.LATE
        return Condition.WORKING if self.emitted > self.committed else Condition.UP_TO_DATE


def overviews(tx: DatabaseTransaction, topology: str | None = None) -> list[Overview]:
    """Return the position of one topology, or of every topology of this ledger, by name."""
    rows = tx.all("topology_status", topology=topology)
    standings = find_standings(tx, topology)
    answers = ask_of_topologies(tx, ASKED, topology)
    return [
        _overview(row, answers[row["topology"]], standings[row["topology"]])
        for row in rows
        if row["topology"] in standings
    ]


def _overview(row: Row, answers: AnswersOfTopology, standing: Standing) -> Overview:
    topology = row["topology"]
    return made_of(
        Overview,
        row,
        emitted=row["next_txid"] - 1,
        committed=row["curr_txid"] - 1,
        window=(row["curr_txid"], row["curr_txid"] + row["max_spout_pending"]),
        paused=row["paused_reason"],
        blocked=standing.blocked,
        held=_with_txids(answers["held_txids"]),
        parked=_with_txids(answers["parked_txids"]),
        skipped=_with_txids(answers["skipped_txids"]),
        excluded=_without_topology(answers["excluded_items"]),
        to_replay=_with_txids(answers["items_to_replay"]),
        lacking=report_intervals(topology, answers, standing),
        replays={
            row["txid"]: wait
            for row in answers["requested_replays"]
            if (wait := why_waits(standing.snapshot(row["txid"]))) is not None
        },
    )


def _with_txids(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "txids": format_ranges(row["txids"])} for row in _without_topology(rows)]


def _without_topology(rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in row if name != "topology"} for row in rows]


@dataclass(frozen=True, slots=True)
class ForAPerson:
    """Something that does not go on by itself, or not at once.

    :param text: the matter with its reason and what to type, as it goes on after "TOPOLOGY: "
    :param marks: the words in it that say what is the matter
    """

    condition: Condition
    text: str
    marks: tuple[str, ...] = ()

    @property
    def is_urgent(self) -> bool:
        """Say whether it does not go on without a person."""
        return self.condition not in (Condition.WORKING, Condition.UP_TO_DATE)


def for_a_person(overview: Overview) -> Iterator[ForAPerson]:
    """Yield what a person should know of a topology."""
    topology = overview.topology
    if overview.paused is not None:
        text = f"paused: {overview.paused} (until `reliability resume {topology}`)"
        yield ForAPerson(Condition.PAUSED, text, ("paused",))
    for waiting in overview.waiting:
        if waiting.wait.reason.what is not WaitsFor.RESUME:  # it is said above
            yield ForAPerson(Condition.WORKING, str(waiting))
    if overview.checkpoint != "COMMITTED":
        text = (
            f"a checkpoint is in phase {overview.checkpoint}; the next task or sweep finishes it, "
        )
        yield ForAPerson(Condition.WORKING, f"{text}or says why it cannot")
    for held in overview.held:
        until = f"until `reliability release {topology}`"
        text = f"{with_verb(held['txids'])} held, {until}: {held['reason']}"
        yield ForAPerson(Condition.HELD, text, ("held",))
    if overview.blocked is not None and not overview.held:
        yield ForAPerson(Condition.BLOCKED, overview.blocked.advice(topology), ("blocked",))
    counts = overview.lacking.counts
    if lacking := format_counts(counts):
        is_late = NEED_A_PERSON & counts.keys()
        condition = Condition.LATE if is_late else Condition.WORKING
        yield ForAPerson(
            condition, f"{lacking}; `reliability lag {topology}` lists them", tuple(counts)
        )
    if overview.lacking.unknown:
        text = f"expected intervals unknown: {overview.lacking.unknown}"
        yield ForAPerson(Condition.UP_TO_DATE, text, ("unknown",))
    yield from _left_out(overview)


def _left_out(overview: Overview) -> Iterator[ForAPerson]:
    """Yield what is not counted because a person wants it so."""
    topology = overview.topology
    for parked in overview.parked:
        again = f"reliability replay {topology} {parked['txids']}"
        how = "empty, as it was skipped," if parked["is_unskipped"] else "parked,"
        text = f"{with_verb(parked['txids'])} {how} until `{again}`: {parked['reason']}"
        yield ForAPerson(Condition.HELD, text, ("parked", "skipped"))
    for skipped in overview.skipped:
        back = f"reliability unskip {topology} TXID --reason '…'"
        text = f"{with_verb(skipped['txids'])} skipped for good, until `{back}`"
        yield ForAPerson(Condition.UP_TO_DATE, f"{text}: {skipped['reason']}", ("skipped",))
    for excluded in overview.excluded:
        back = f"reliability include {topology} {shlex.quote(excluded['item'])} --reason '…'"
        text = f"{excluded['item']} excluded, until `{back}`: {excluded['reason']}"
        yield ForAPerson(Condition.UP_TO_DATE, text, ("excluded",))
    for item in overview.to_replay:
        what = "is excluded and still counted" if item["is_excluded"] else "is not counted yet"
        text = f"{item['item']} {what}: `reliability replay {topology} {item['txids']}`"
        yield ForAPerson(Condition.LATE, text, ("excluded",))
