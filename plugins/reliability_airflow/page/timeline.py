"""The attempts at some txids on one axis of time: which bars and marks there are, and where.

Positions are percents of the width. Long times in which nothing happened are cut short, so that the
replay of an old txid does not squeeze all bars to a line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Any

from reliability.core.texts import format_length

#: a pause is cut if it is longer than this share of the time in which something happened
LONG_PAUSE = 0.15
#: percents of the width that a pause which is cut takes, and that all of them take at most
CUT = 2.0
CUTS = 30.0
#: percents that are left at the right, for what ends last
MARGIN = 1.0
#: percents that a bar takes at least, so that it can be seen
LEAST = 0.25
TICKS = 6
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A phase of an attempt: `processing`, `waiting` or `commit`."""

    kind: str
    begin: float
    width: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at a moment; `sign` is what a person sees."""

    kind: str
    at: float
    sign: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What a txid's line shows."""

    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def text(self) -> str:
        """Return it as a text, for those who do not see it."""
        titles = [bar.title for bar in self.bars] + [mark.title for mark in self.marks]
        return "; ".join(titles) or "no attempt yet"


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis, or a pause that is cut: `label` is its length then."""

    at: float
    label: str
    is_cut: bool = False


class Axis:
    """Maps moments to percents of the width."""

    def __init__(self, spans: Iterable[tuple[datetime, datetime]]) -> None:
        self._pieces = _joined(spans)
        busy = sum(_seconds(end - begin) for begin, end in self._pieces)
        least = max(busy * LONG_PAUSE, 1.0)
        self._pieces = _joined(self._pieces, least)
        busy = sum(_seconds(end - begin) for begin, end in self._pieces) or 1.0
        cuts = max(len(self._pieces) - 1, 0)
        self._cut = min(CUT, CUTS / (cuts or 1))
        room = 100.0 - MARGIN - self._cut * cuts
        self._scale = room / busy
        self._starts: list[float] = []
        at = 0.0
        for begin, end in self._pieces:
            self._starts.append(at)
            at += _seconds(end - begin) * self._scale + self._cut

    def at(self, moment: datetime) -> float:
        """Return where a moment is; one in a pause is where the pause begins."""
        if not self._pieces:
            return 0.0
        place = max(bisect_right(self._pieces, moment, key=lambda piece: piece[0]) - 1, 0)
        begin, end = self._pieces[place]
        inside = min(max(moment, begin), end) - begin
        return self._starts[place] + _seconds(inside) * self._scale

    def ticks(self) -> Iterator[Tick]:
        """Yield round times, and the pauses that are cut."""
        total = sum(_seconds(end - begin) for begin, end in self._pieces)
        step = next((s for s in _STEPS if total / s <= TICKS), _STEPS[-1])
        last = last_cut = -100.0
        for place, (begin, end) in enumerate(self._pieces):
            cut = self._starts[place] - self._cut / 2
            if place and cut - last_cut >= CUT:  # where there is room for its sign
                last_cut = cut
                pause = begin - self._pieces[place - 1][1]
                yield Tick(cut, format_length(_seconds(pause)), True)
            first = -(-int(begin.timestamp()) // step) * step
            for second in range(first, int(end.timestamp()) + 1, step):
                moment = datetime.fromtimestamp(second, timezone.utc)
                at = self.at(moment)
                if at - last >= 100 / TICKS / 2 and at - last_cut >= CUT and at <= 96:
                    last = at
                    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%m-%d"
                    yield Tick(at, f"{moment:{form}}")


def _joined(
    spans: Iterable[tuple[datetime, datetime]], pause: float = 0.0
) -> list[tuple[datetime, datetime]]:
    """Join what overlaps, or follows after a pause of so many seconds at most."""
    joined: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(spans):
        if joined and _seconds(begin - joined[-1][1]) <= pause:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _seconds(length: timedelta) -> float:
    return length.total_seconds()


# --- the attempts --------------------------------------------------------------------------------

#: status -> kind and sign of its mark
_ENDS = {
    "FAILED": ("failed", "✕"),
    "FENCED": ("fenced", "⊘"),
    "ROLLED_BACK": ("rolled-back", "↶"),
    "DRY_RUN": ("dry-run", "◇"),
}


def axis_of(attempts: Sequence[Mapping[str, Any]]) -> Axis:
    """Return the axis on which all these attempts are."""
    return Axis((row["granted_at"], _end(row)) for row in attempts)


def _end(row: Mapping[str, Any]) -> datetime:
    """Return when an attempt stopped taking time; a rollback long after its commit takes none."""
    begin: datetime = row["granted_at"]
    end: datetime = row["committed_at"] or row["ended_at"] or row["now"]
    return max(begin, end)


def lane(axis: Axis, attempts: Sequence[Mapping[str, Any]]) -> Lane:
    """Return the bars and marks of a txid."""
    bars = chain.from_iterable(_bars(axis, row) for row in attempts)
    marks = chain.from_iterable(_marks(axis, row) for row in attempts)
    return Lane(tuple(bars), tuple(marks))


def _bars(axis: Axis, row: Mapping[str, Any]) -> Iterator[Bar]:
    name = f"{row['txid']}:{row['attempt_id']}"
    end = _end(row)
    sealed = row["processed_at"]
    if row["verdict"]:  # parked or skipped: nothing was processed
        return
    yield _bar(axis, "processing", f"{name} processing", row["granted_at"], sealed or end)
    if sealed is None:
        return
    began = row["began_at"] or end
    yield _bar(axis, "waiting", f"{name} waiting for its turn", sealed, began)
    if row["committed_at"] is not None and row["began_at"] is not None:
        yield _bar(axis, "commit", f"{name} commit", began, row["committed_at"])


def _bar(axis: Axis, kind: str, what: str, begin: datetime, end: datetime) -> Bar:
    left = axis.at(begin)
    width = max(axis.at(max(end, begin)) - left, LEAST)
    took = format_length(max(_seconds(end - begin), 0.0))
    return Bar(kind=kind, begin=left, width=width, title=f"{what}, {took}")


def _marks(axis: Axis, row: Mapping[str, Any]) -> Iterator[Mark]:
    name = f"{row['txid']}:{row['attempt_id']}"
    if row["verdict"]:
        what = row["verdict"].lower()
        yield Mark(kind=what, at=axis.at(_end(row)), sign="∅", title=f"{name} {what}")
    elif row["change"] == "REPLAY":
        at = axis.at(row["committed_at"])
        yield Mark(kind="replay", at=at, sign="↻", title=f"{name} replayed")
    if row["status"] in _ENDS:
        kind, sign = _ENDS[row["status"]]
        code = f", {row['reason_code']}" if row["reason_code"] else ""
        status = row["status"].lower().replace("_", " ")
        yield Mark(kind=kind, at=axis.at(_end(row)), sign=sign, title=f"{name} {status}{code}")
