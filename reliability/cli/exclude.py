"""`reliability exclude` and `include`: leave one file out of its txid, or take it in again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import check_asked, ledger, verb, warn
from reliability.cli.output import plain, what_to_clear
from reliability.cli.parts import answer
from reliability.cli.replay import Replays, lines_of
from reliability.core.txids import format_txids, with_noun
from reliability.deployment.settings import home, person
from reliability.ledger.connection import LedgerConnection
from reliability.spouts.file_names import identity_of_file
from reliability.transaction.correct.exclude import ItemOfTxids, check_exclusion, find_item
from reliability.transaction.correct.exclude import exclude as exclude_item
from reliability.transaction.correct.exclude import include as include_item
from reliability.transaction.inspect.select import Selected, with_intervals
from reliability.transaction.replay import ReplayResult

Item = Annotated[
    str, typer.Argument(metavar="FILE", help="Its name in the ledger, its path, or its last parts.")
]


@verb(
    "reliability exclude shop 2013-02/part-7.csv --reason 'its prices are in pence' --dry-run",
    "reliability exclude shop 2013-02/part-7.csv --reason 'its prices are in pence'",
)
def exclude(
    topology: options.Topology,
    file: Item,
    reason: options.Reason,
    spark: options.Spark,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Leave one file out of its txid, and out of everything later, until `reliability include`.

    If its txid has committed, a replay without the file takes it out of the tables; --dry-run shows
    what that would change. If it has not committed, its attempt is fenced, and the command says
    what begins another. Without --yes, it asks before Spark runs.
    """
    with ledger(topology) as connection:
        item = _find(connection, topology, file)
        found = check_exclusion(connection, topology, item)
        selected = with_intervals(connection, topology, found.to_replay)
        # nothing is recorded if Spark is missing here
        run = Replays(connection, topology, spark, selected) if found.to_replay else None
        done: Sequence[ReplayResult] = ()
        if dry_run and run:
            asked = {"reason": f"without {item}", "without": frozenset({item})}
            done = run.replay(run.request(**asked, is_dry_run=True)).results
        elif not dry_run:
            again = "Spark will process the rest again; --dry-run shows first what would change."
            question = [again, "Exclude it?"] if run else ["Exclude it?"]
            check_asked(_says(topology, found), *question, yes=yes)
            found = exclude_item(connection, topology, item, reason, person())
            if since := set(found.to_replay) - set(selected.txids):  # the question was read
                txids = format_txids(since)
                warn(
                    f"{item} was counted meanwhile by {with_noun(txids)} of {topology}. To take "
                    f"it out: `reliability replay {topology} {txids}`"
                )
            if run:
                done = _take_out(run, selected, item, reason)
    document = {
        "topology": topology,
        "item": item,
        "is_dry_run": dry_run,
        "replayed": done,
        "at_work": format_txids(found.at_work),
        "held": format_txids(found.held),
        "to_clear": found.to_clear,
    }
    lines = _excluded(selected, found, done, dry_run=dry_run)
    answer(document, lines, as_json=as_json)
    if found.is_nobodys and not dry_run and "://" not in item and not os.path.exists(home() / item):
        warn(f"there is no file {item} now; check the name")


def _take_out(run: Replays, selected: Selected, item: str, reason: str) -> Sequence[ReplayResult]:
    try:
        return run.replay(run.request(reason=reason)).results
    except BaseException:
        warn(
            f"{item} is excluded, and the tables still contain it: run `reliability replay "
            f"{selected.topology} {format_txids(selected.txids)}`"
        )
        raise


def _find(connection: LedgerConnection, topology: str, file: str) -> str:
    return find_item(connection, topology, file, identity_of_file(file))


def _says(topology: str, found: ItemOfTxids) -> str:
    if found.to_replay:
        return f"{found.item}: {with_noun(format_txids(found.to_replay))} of {topology} counted it."
    undone = [*found.at_work, *(txid for run in found.to_clear for txid in run.txids)]
    if undone:
        txids = with_noun(format_txids(undone))
        return f"{found.item}: {txids} of {topology} not committed yet"
    which = "no txid" if found.is_nobodys else "only a parked or skipped txid"
    return f"{found.item}: {which} of {topology} has it."


def _excluded(
    selected: Selected, found: ItemOfTxids, results: Sequence[ReplayResult], *, dry_run: bool
) -> Iterator[str]:
    topology, item = selected.topology, found.item
    yield from lines_of(selected, results, is_dry_run=dry_run)
    if dry_run:
        yield _says(topology, found)
        return
    back = f"`reliability include {topology} {shlex.quote(item)} --reason '…'`"
    yield f"{item} is excluded from {topology}: {back} takes it in again"
    yield from _runs_to_clear(topology, found)
    if found.is_nobodys:
        yield f"No txid has it. If a run failed because of it: reliability resume-runs {topology}"


def _runs_to_clear(topology: str, found: ItemOfTxids) -> Iterator[str]:
    if found.at_work:
        yield f"Begun again by its run, without a clear: txid {format_txids(found.at_work)}"
    if found.held:
        yield f"Release {with_noun(format_txids(found.held))} first: reliability release {topology}"
    if found.to_clear:
        yield "Next, for what has not committed yet:"
        yield from what_to_clear(topology, found.to_clear)


@verb("reliability include shop 2013-02/part-7.csv --reason 'the supplier confirmed its prices'")
def include(
    topology: options.Topology, file: Item, reason: options.Reason, as_json: options.AsJson = False
) -> None:
    """Take an excluded file in again, and print what processes it; no table changes by itself."""
    with ledger(topology) as connection:
        item = _find(connection, topology, file)
        found = include_item(connection, topology, item, reason, person())
    own = {name: format_txids(getattr(found, name)) for name in ("to_replay", "at_work", "held")}
    document = {"topology": topology, **plain(found), **own}
    answer(document, _included(topology, found), as_json=as_json)


def _included(topology: str, found: ItemOfTxids) -> Iterator[str]:
    yield f"{found.item} is no longer excluded from {topology}."
    if found.to_replay:
        yield f"Next: reliability replay {topology} {format_txids(found.to_replay)}"
    yield from _runs_to_clear(topology, found)
    if found.is_nobodys:
        yield "No txid has it; the next run of its interval emits it."
