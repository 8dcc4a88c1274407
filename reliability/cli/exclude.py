"""`reliability exclude` and `include`: leave one file out of its txid, or take it in again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.app import (
    AsJson,
    Master,
    Module,
    Reason,
    SparkConf,
    Timeout,
    TopologyName,
    Yes,
    check_asked,
    check_known,
    ledger,
    person,
    verb,
    warn,
)
from reliability.cli.output import commands_to_clear, plain_run, print_json
from reliability.cli.replay import Replays, print_replayed
from reliability.cli.select import Selected, with_intervals
from reliability.cli.terminal import say
from reliability.core.txids import format_txids, with_noun

if TYPE_CHECKING:
    from reliability.cli.replay_run import ReplayResult
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.correct.exclude import ItemOfTxids

Item = Annotated[
    str,
    typer.Argument(metavar="FILE", help="Its name in the ledger, its path, or its last parts."),
]


@verb(
    "reliability exclude shop 2013-02/part-7.csv --reason 'its prices are in pence' --dry-run",
    "reliability exclude shop 2013-02/part-7.csv --reason 'its prices are in pence'",
)
def exclude(
    topology: TopologyName,
    file: Item,
    reason: Reason,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would change.")
    ] = False,
    yes: Yes = False,
    master: Master = "",
    conf: SparkConf = None,
    timeout: Timeout = 3600,
    module: Module = "",
    as_json: AsJson = False,
) -> None:
    """Leave one file out of its txid, and out of everything later, until `reliability include`.

    If its txid has committed, a replay without the file takes it out of the tables; --dry-run shows
    what that would change. If the txid has not committed, the runs to clear are printed. Without
    --yes, it asks before Spark runs.
    """
    from reliability.transaction.correct.exclude import check_exclusion
    from reliability.transaction.correct.exclude import exclude as exclude_item

    with ledger() as connection:
        check_known(connection, topology)
        item = _find(connection, topology, file)
        found = check_exclusion(connection, topology, item)
        replays = Replays(connection, topology, module, timeout, master, conf or [])
        if found.to_replay:  # nothing is recorded if Spark is missing here
            replays.submit()
        if dry_run:
            without = frozenset({item})
            done = replays.run(found.to_replay, f"without {item}", is_dry_run=True, without=without)
        else:
            check_asked(_says(topology, found), *_question(found), yes=yes)
            found = exclude_item(connection, topology, item, reason, person())
            done = _take_out(replays, found, reason)
        selected = with_intervals(connection, topology, found.to_replay)
    _print_excluded(selected, found, done, dry_run=dry_run, as_json=as_json)


def _take_out(replays: Replays, found: ItemOfTxids, reason: str) -> list[ReplayResult]:
    try:
        return replays.run(found.to_replay, reason)
    except BaseException:
        warn(
            f"{found.item} is excluded, and the tables still contain it: run `reliability replay "
            f"{replays.topology} {format_txids(found.to_replay)}`"
        )
        raise


def _find(connection: LedgerConnection, topology: str, file: str) -> str:
    from reliability.spouts.file_names import identity_of_file
    from reliability.transaction.correct.exclude import find_item

    return find_item(connection, topology, file, identity_of_file(file))


def _question(found: ItemOfTxids) -> Iterator[str]:
    if found.to_replay:
        yield "Spark will process the rest again; --dry-run shows first what would change."
    yield "Exclude it?"


def _says(topology: str, found: ItemOfTxids) -> str:
    if found.to_replay:
        return f"{found.item}: {with_noun(format_txids(found.to_replay))} of {topology} counted it."
    if found.to_clear:
        txids = format_txids(txid for run in found.to_clear for txid in run.txids)
        return f"{found.item}: {with_noun(txids)} of {topology} not committed yet."
    return f"{found.item}: no txid of {topology} has it."


def _print_excluded(
    selected: Selected,
    found: ItemOfTxids,
    replayed: list[ReplayResult],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    topology = selected.topology
    if as_json:
        return print_json(
            {
                "topology": topology,
                "item": found.item,
                "is_dry_run": dry_run,
                "replayed": replayed,
                "to_clear": [plain_run(run) for run in found.to_clear],
            }
        )
    print_replayed(selected, replayed, is_dry_run=dry_run)
    if dry_run:
        say(_says(topology, found))
        return
    say(
        f"{found.item} is excluded from {topology}: `reliability include {topology} "
        f"{shlex.quote(found.item)} --reason '…'` "
        "takes it in again"
    )
    _print_runs_to_clear(found)
    if not found.to_clear and not found.to_replay:
        say(f"No txid has it. If a run failed because of it: reliability resume-runs {topology}")
        _warn_if_absent(found.item)


def _print_runs_to_clear(found: ItemOfTxids) -> None:
    if found.to_clear:
        say("Clear the runs whose txids have not committed yet, in order:")
    for line in commands_to_clear(found.to_clear):
        say(line)


def _warn_if_absent(item: str) -> None:
    from reliability.deployment.settings import home

    if "://" not in item and not (home() / item).exists():
        warn(f"there is no file {item} now; check the name")


@verb("reliability include shop 2013-02/part-7.csv --reason 'the supplier confirmed its prices'")
def include(topology: TopologyName, file: Item, reason: Reason, as_json: AsJson = False) -> None:
    """Take an excluded file in again, and print what processes it; no table changes by itself."""
    from reliability.transaction.correct.exclude import include as include_item

    with ledger() as connection:
        check_known(connection, topology)
        item = _find(connection, topology, file)
        found = include_item(connection, topology, item, reason, person())
    if as_json:
        return print_json(
            {
                "topology": topology,
                "item": item,
                "to_replay": format_txids(found.to_replay),
                "to_clear": [plain_run(run) for run in found.to_clear],
            }
        )
    say(f"{item} is no longer excluded from {topology}.")
    if found.to_replay:
        say(f"Next: reliability replay {topology} {format_txids(found.to_replay)}")
    _print_runs_to_clear(found)
    if not found.to_clear and not found.to_replay:
        say("No txid has it; the next run of its interval emits it.")
