"""The position of every topology, what of it waits and why, and what needs a person: what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from reliability.core.coordinator import Blocked, Wait, why_waits
from reliability.core.standing import Standing
from reliability.core.txids import format_ranges, format_txids, with_noun, with_verb
from reliability.core.waits import WaitsFor
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.transaction.inspect.intervals import (
    NEED_A_PERSON,
    IntervalsReport,
    format_counts,
    intervals_without_commit,
)
from reliability.transaction.topology.read_standing import find_standing


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

    def __str__(self) -> str:
        one = self.txids.isdigit()
        if self.are_replays:
            return f"the replay of {with_noun(self.txids)} waits {self.wait}"
        return f"{with_noun(self.txids)} {'waits' if one else 'wait'} {self.wait}"


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

    @property
    def waiting(self) -> list[Waiting]:
        """Return the txids that wait, those with the same reason together."""
        found: dict[tuple[bool, Wait], list[int]] = {}
        for report in self.lacking.reports:
            if report.wait is not None:
                found.setdefault((False, report.wait), []).extend(report.txids)
        for txid, wait in self.replays.items():
            found.setdefault((True, wait), []).append(txid)
        return [
            Waiting(txids=format_txids(txids), wait=wait, are_replays=are_replays)
            for (are_replays, wait), txids in found.items()
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
    return [
        _overview(tx, row, standing)
        for row in rows
        if (standing := find_standing(tx, row["topology"])) is not None
    ]


def _overview(tx: DatabaseTransaction, row: Row, standing: Standing) -> Overview:
    topology = row["topology"]
    return Overview(
        topology=topology,
        emitted=row["next_txid"] - 1,
        committed=row["curr_txid"] - 1,
        window=(row["curr_txid"], row["curr_txid"] + row["max_spout_pending"]),
        processing=row["processing"],
        processed=row["processed"],
        commit_number=row["commit_number"],
        checkpoint=row["checkpoint"],
        last_change_at=row["last_change_at"],
        oldest_uncommitted_at=row["oldest_uncommitted_at"],
        paused=row["paused_reason"],
        blocked=standing.blocked,
        held=_with_txids(tx.all("held_txids", topology=topology)),
        parked=_with_txids(tx.all("parked_txids", topology=topology)),
        skipped=_with_txids(tx.all("skipped_txids", topology=topology)),
        excluded=tx.all("excluded_items", topology=topology),
        to_replay=_with_txids(tx.all("items_to_replay", topology=topology)),
        lacking=intervals_without_commit(tx, topology, standing=standing),
        replays={
            row["txid"]: wait
            for row in tx.all("requested_replays", topology=topology)
            if (wait := why_waits(standing.snapshot(row["txid"]))) is not None
        },
    )


def _with_txids(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{**row, "txids": format_ranges(row["txids"])} for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
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


def for_a_person(one: Overview) -> Iterator[ForAPerson]:
    """Yield what a person should know of a topology."""
    topology = one.topology
    if one.paused is not None:
        yield ForAPerson(
            condition=Condition.PAUSED,
            text=f"paused: {one.paused} (until `reliability resume {topology}`)",
            marks=("paused",),
        )
    for waiting in one.waiting:
        if waiting.wait.reason.what is not WaitsFor.RESUME:  # it is said above
            yield ForAPerson(condition=Condition.WORKING, text=str(waiting))
    if one.checkpoint != "COMMITTED":
        text = f"a checkpoint is in phase {one.checkpoint}; the next task or sweep finishes it, "
        yield ForAPerson(condition=Condition.WORKING, text=f"{text}or says why it cannot")
    for held in one.held:
        until = f"until `reliability release {topology}`"
        yield ForAPerson(
            condition=Condition.HELD,
            text=f"{with_verb(held['txids'])} held, {until}: {held['reason']}",
            marks=("held",),
        )
    if one.blocked is not None and not one.held:
        text = one.blocked.advice(topology)
        yield ForAPerson(condition=Condition.BLOCKED, text=text, marks=("blocked",))
    counts = one.lacking.counts
    if lacking := format_counts(counts):
        is_late = NEED_A_PERSON & counts.keys()
        yield ForAPerson(
            condition=Condition.LATE if is_late else Condition.WORKING,
            text=f"{lacking}; `reliability lag {topology}` lists them",
            marks=tuple(counts),
        )
    if one.lacking.unknown:
        text = f"expected intervals unknown: {one.lacking.unknown}"
        yield ForAPerson(condition=Condition.UP_TO_DATE, text=text, marks=("unknown",))
    yield from _left_out(one)


def _left_out(one: Overview) -> Iterator[ForAPerson]:
    """Yield what is not counted because a person wants it so."""
    topology = one.topology
    for parked in one.parked:
        again = f"reliability replay {topology} {parked['txids']}"
        how = "empty, as it was skipped," if parked["is_unskipped"] else "parked,"
        yield ForAPerson(
            condition=Condition.HELD,
            text=f"{with_verb(parked['txids'])} {how} until `{again}`: {parked['reason']}",
            marks=("parked", "skipped"),
        )
    for skipped in one.skipped:
        back = f"reliability unskip {topology} TXID --reason '…'"
        what = f"{with_verb(skipped['txids'])} skipped for good, until `{back}`"
        yield _by_choice(f"{what}: {skipped['reason']}", "skipped")
    for excluded in one.excluded:
        back = f"reliability include {topology} {shlex.quote(excluded['item'])} --reason '…'"
        yield _by_choice(
            f"{excluded['item']} excluded, until `{back}`: {excluded['reason']}", "excluded"
        )
    for found in one.to_replay:
        what = "is excluded and still counted" if found["is_excluded"] else "is not counted yet"
        again = f"reliability replay {topology} {found['txids']}"
        yield ForAPerson(
            condition=Condition.LATE,
            text=f"{found['item']} {what}: `{again}`",
            marks=("excluded",),
        )


def _by_choice(text: str, mark: str) -> ForAPerson:
    return ForAPerson(condition=Condition.UP_TO_DATE, text=text, marks=(mark,))
