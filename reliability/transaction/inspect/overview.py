"""The position of every topology, and what of it does not go on by itself: with the next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from reliability.core.coordinator import Blocked
from reliability.core.txids import format_ranges, with_verb
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.records import blocked_of
from reliability.transaction.inspect.intervals import (
    IntervalsReport,
    IntervalState,
    format_counts,
    intervals_without_commit,
)


class Condition(str, Enum):
    """What a topology is doing, the most urgent first."""

    BLOCKED = "blocked"  # a txid that no run works on holds up all later ones
    HELD = "held"  # rolled back; a person must release it
    PAUSED = "paused"
    LATE = "late"  # intervals lack a commit, and no run works on them
    WORKING = "working"
    UP_TO_DATE = "up to date"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The position of a topology.

    :param emitted: the last txid; 0 for none
    :param committed: the last txid that has committed in order; 0 for none
    :param window: the first txid that may be processed, and the first that may not
    :param lacking: the intervals that lack a commit
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

    @property
    def condition(self) -> Condition:
        """Return the most urgent thing that can be said."""
        if self.held:
            return Condition.HELD
        if self.blocked is not None:
            return Condition.BLOCKED
        if self.paused:
            return Condition.PAUSED
        if any(state in self.lacking.counts for state in ("missing", "failed", "late")):
            return Condition.LATE
        return Condition.WORKING if self.emitted > self.committed else Condition.UP_TO_DATE


def overviews(tx: DatabaseTransaction, topology: str | None = None) -> list[Overview]:
    """Return the position of one topology, or of every topology of this ledger, by name."""
    return [_overview(tx, row) for row in tx.all("topology_status", topology=topology)]


def _overview(tx: DatabaseTransaction, row: Row) -> Overview:
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
        blocked=blocked_of(tx.first("blocked_txid", topology=topology, below=row["next_txid"])),
        held=_with_txids(tx.all("held_txids", topology=topology)),
        parked=_with_txids(tx.all("parked_txids", topology=topology)),
        skipped=_with_txids(tx.all("skipped_txids", topology=topology)),
        excluded=tx.all("excluded_items", topology=topology),
        to_replay=_with_txids(tx.all("items_to_replay", topology=topology)),
        lacking=intervals_without_commit(tx, topology),
    )


def _with_txids(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{**row, "txids": format_ranges(row["txids"])} for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForAPerson:
    """Something that does not go on by itself, or not at once.

    :param what: the matter in a sentence, with its reason
    :param next_step: a command; empty if there is none
    """

    condition: Condition
    what: str
    next_step: str = ""


def for_a_person(one: Overview) -> Iterator[ForAPerson]:
    """Yield what a person should know of a topology, the most urgent first."""
    topology = one.topology
    if one.paused:
        yield ForAPerson(
            condition=Condition.PAUSED,
            what=f"paused: {one.paused}",
            next_step=f"reliability resume {topology}",
        )
    if one.checkpoint != "COMMITTED":
        yield ForAPerson(
            condition=Condition.WORKING,
            what=f"a checkpoint is in phase {one.checkpoint}; the next task or sweep finishes it, "
            "or says why it cannot",
        )
    for held in one.held:
        yield ForAPerson(
            condition=Condition.HELD,
            what=f"{with_verb(held['txids'])} held: {held['reason']}",
            next_step=f"reliability release {topology}",
        )
    if one.blocked is not None and not one.held:
        yield ForAPerson(
            condition=Condition.BLOCKED,
            what=one.blocked.advice(topology),
            next_step=f"reliability resume-runs {topology}",
        )
    if lacking := format_counts(one.lacking.counts):
        is_at_work = one.lacking.counts.keys() <= {IntervalState.OPEN.value}
        yield ForAPerson(
            condition=Condition.WORKING if is_at_work else Condition.LATE,
            what=lacking,
            next_step=f"reliability lag {topology}",
        )
    if one.lacking.unknown:
        yield ForAPerson(
            condition=Condition.UP_TO_DATE,
            what=f"expected intervals unknown: {one.lacking.unknown}",
        )
    for parked in one.parked:
        how = "empty, as it was skipped," if parked["is_unskipped"] else "parked,"
        yield ForAPerson(
            condition=Condition.HELD,
            what=f"{with_verb(parked['txids'])} {how} until a replay: {parked['reason']}",
            next_step=f"reliability replay {topology} {parked['txids']}",
        )
