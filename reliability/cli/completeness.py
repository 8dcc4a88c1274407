"""`reliability completeness`: what is there of each interval, and what became of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import FOUND, ledger, verb
from reliability.cli.lag import read_source
from reliability.cli.parts import Line, Part, Table, answer
from reliability.transaction.inspect.completeness import (
    ASIDE,
    COMPLETE,
    Completeness,
    completeness_of,
)


@verb(
    "reliability completeness shop",
    "reliability completeness shop --interval 2013-03",
    "reliability completeness shop --interval 2013-01/2013-04 --check",
)
def completeness(
    topology: options.Topology,
    wanted: options.OfInterval,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 unless all is known to be complete.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show for each interval whether it is complete, and how many rows were read and set aside.

    An interval is complete if all its txids have committed, the source has nothing more for it,
    its files are as they were read, and no exclusion waits for a replay. Otherwise it is changed,
    to_replay, missing, failed, late, held, parked and the like, as in `lag`. If states were not
    given the same rows, each is named.
    """
    with ledger(topology) as connection:
        interval = wanted.interval_of(connection, topology)
        source = read_source(connection, topology, wanted=interval)
        found = completeness_of(connection, topology, interval, source)
    code = FOUND if check and not found.is_complete else 0
    answer(found, _page(found), as_json=as_json, code=code)


# States that `lag` does not explain, or not for what has committed.
_EXPLAINED = ("changed", "to_replay", "late")


def _page(completeness: Completeness) -> Iterator[Part]:
    yield Table(
        ("interval", "state", ">txids", ">rows", ">dropped", ">quarantined"),
        [
            (
                interval.name,
                interval.state,
                interval.txids,
                interval.emitted,
                *(_by_state(interval.states, name) for name in ASIDE),
            )
            for interval in completeness.intervals
        ],
        empty="No interval is expected, and none was emitted.",
        hide_empty=True,
        coloured=["state", "quarantined"],
    )
    for interval in completeness.intervals:
        if interval.state in _EXPLAINED:
            text = f"{interval.name} {interval.state}: {interval.why}"
            yield Line(text, [interval.state])
            yield Line(f"  next: {interval.next_step}")
    complete = sum(interval.state == COMPLETE for interval in completeness.intervals)
    total = sum(interval.count for interval in completeness.intervals)
    yield Line(f"{complete:,} of {total:,} intervals are complete")
    if completeness.expected_unknown:
        yield Line(f"expected intervals unknown: {completeness.expected_unknown}")
    if completeness.source_error:
        text = "late and changed items unknown, the source could not be read"
        yield Line(f"{text}: {completeness.source_error}")
    if completeness.states_error:
        yield Line(f"what some states dropped is unknown: {completeness.states_error}")


def _by_state(states: Sequence[Mapping[str, Any]], name: str) -> str:
    """Format how many rows were set aside: for each state, unless it is the same for all.

    >>> by_day, total = {"state": "by_day", "dropped": 2841}, {"state": "total", "dropped": 0}
    >>> _by_state([by_day, total], "dropped"), _by_state([by_day], "dropped")
    ('2,841 by_day', '2,841')
    """
    counts = {state["state"]: state[name] for state in states}
    if len(set(counts.values())) == 1:
        return f"{max(counts.values()):,}" if any(counts.values()) else ""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
