"""Commands that change what is processed, from pause to drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import check_asked, ledger, verb, warn
from reliability.cli.output import each_to_clear, format_differences, plain, what_to_clear
from reliability.cli.parts import answer
from reliability.cli.terminal import say
from reliability.core.errors import ReliabilityError
from reliability.core.texts import signed
from reliability.core.txids import format_txids
from reliability.deployment.settings import person
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.commit.apply import Committed
from reliability.transaction.correct.drop import drop_topology, what_would_go
from reliability.transaction.correct.park import EmptyVerdict, Unskipped, check_all, in_order
from reliability.transaction.correct.park import park as park_txid
from reliability.transaction.correct.park import skip as skip_txid
from reliability.transaction.correct.park import unskip as unskip_txid
from reliability.transaction.correct.rollback import RolledBack, RunToClear, roll_back
from reliability.transaction.correct.rollback import release as release_txids
from reliability.transaction.inspect.select import Selected, with_intervals
from reliability.transaction.topology.lifecycle import pause as pause_topology
from reliability.transaction.topology.lifecycle import resume as resume_topology

Txid = Annotated[int, typer.Argument(metavar="TXID", min=1)]


@verb("reliability pause shop --reason 'the warehouse moves'")
def pause(topology: options.Topology, reason: options.Reason) -> None:
    """Begin no more attempts of a topology; txids in flight are processed and committed."""
    with ledger() as connection:
        pause_topology(connection, topology, signed(reason, person()))
    say(f"{topology} is paused: {reason}")


@verb("reliability resume shop")
def resume(topology: options.Topology) -> None:
    """Let attempts of a paused topology begin again."""
    with ledger() as connection:
        resume_topology(connection, topology)
    say(f"{topology} is resumed: attempts may begin")


# --- rollback ------------------------------------------------------------------------------------


@verb(
    "reliability rollback shop 41 --dry-run",
    "reliability rollback shop 41 --reason 'May was delivered twice'",
    "reliability rollback shop --interval 2013-04 --reason 'May was delivered twice'",
)
def rollback(
    topology: options.Topology,
    contents: options.Contents,
    diff: options.Diff,
    txid: Annotated[
        int | None, typer.Argument(metavar="TXID", min=0, help="The last txid to keep; 0 for none.")
    ] = None,
    reason: options.ReasonOfChange = "",
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Return all states of a topology to what they were after a txid.

    With --interval or --file, that is the last of the txids that these select. Later txids are
    held, their attempts fenced and their requests closed, until `reliability release`. Without
    --yes, a dry run first shows what would change and asks for confirmation.
    """
    if (txid is None) != bool(contents):
        raise typer.BadParameter("name a txid, or select txids by --interval and --file")
    if not (reason or dry_run):
        raise typer.BadParameter("a rollback needs a --reason, unless it is a --dry-run")
    reason = signed(reason or "a dry run", person())  # the ledger's log takes none without
    with (
        ledger(topology) as connection,
        ExitStack() as at_last,  # answers when the file is closed, or cannot be
        diff.opened(connection, topology, dry_run=dry_run) as rows,
    ):
        if txid is None:
            txid = contents.select(connection, topology).txids[-1]
        interval = contents.interval_of(connection, topology)
        back = partial(roll_back, connection, topology, txid, reason, interval=interval)
        if not dry_run and not yes:
            would = back(dry_run=True)
            check_asked(*_rollback_question(_txids_of(connection, would), would), yes=False)
        done = back(dry_run=dry_run, observer=rows.observe if rows else None)
        txids = _txids_of(connection, done)
        to_interval = txids.intervals.get(done.to_txid)
        document = {**done.to_json(), "to_interval": to_interval and str(to_interval)}
        at_last.callback(answer, document, _rolled_back(txids, done), as_json=as_json)


def _txids_of(connection: LedgerConnection, done: RolledBack) -> Selected:
    return with_intervals(connection, done.topology, [done.to_txid, *done.held])


_DROPPED = "this drops a decided commit that a database could not carry out"


def _rollback_question(txids: Selected, would: RolledBack) -> Iterator[str]:
    later = "txid after it" if len(would.held) == 1 else f"{len(would.held)} txids after it"
    yield (
        f"{txids.topology} will be rolled back to {txids.named([would.to_txid])}. The {later}, "
        f"{txids.named(would.held)}, {_are(would.held)} taken out and held; attempts are fenced "
        "and requests closed. What would change:"
    )
    yield from format_differences(would.differences)
    if would.dropped:
        yield _DROPPED
    yield from would.dates.lines()
    yield "Roll back?"


def _rolled_back(txids: Selected, done: RolledBack) -> Iterator[str]:
    topology, to, held = txids.topology, txids.named([done.to_txid]), txids.named(done.held)
    number = done.commit_number
    if number is None:
        yield f"{topology} would be rolled back to {to}. What would change:"
    else:
        yield f"{topology} was rolled back to {to} as c={number}. What changed:"
    yield from format_differences(done.differences)
    if done.dropped:
        yield _DROPPED
    yield from done.dates.lines()
    if number is None:
        yield f"{held} would be held"
    else:
        yield f"{held} {_are(done.held)} held. Next, when the cause is fixed:"
        yield f"  reliability release {topology}"


def _are(txids: Sequence[int]) -> str:
    return "is" if len(txids) == 1 else "are"


# --- release -------------------------------------------------------------------------------------


@verb(
    "reliability release shop",
    "reliability release shop 42..44",
    "reliability release shop --interval 2013-05",
)
def release(
    topology: options.Topology, selection: options.Selection, as_json: options.AsJson = False
) -> None:
    """Let held txids be processed again, all or some, and print the runs that request them.

    Nothing starts by itself: `reliability resume-runs` clears exactly what the runs lack.
    """
    with ledger(topology) as connection:
        wanted = selection.select(connection, topology) if selection else None
        runs = release_txids(connection, topology, wanted.txids if wanted else None)
        released = [txid for run in runs for txid in run.txids]
        named = with_intervals(connection, topology, released)
    if wanted is not None and (left := set(wanted.txids) - set(released)):
        warn(f"{wanted.named(left)} not held")
    document = {"topology": topology, "released": format_txids(released), "runs": runs}
    answer(document, _released(named, runs), as_json=as_json)


def _released(txids: Selected, runs: Sequence[RunToClear]) -> Iterator[str]:
    if not runs:
        yield f"no txid of {txids.topology} was held"
        return
    yield f"{txids} released. Nothing starts by itself. Next:"
    yield from what_to_clear(txids.topology, runs)


# --- drop ----------------------------------------------------------------------------------------


@verb("reliability drop shop", "reliability drop shop --yes", "reliability drop shop --keep-tables")
def drop(
    topology: options.Topology,
    keep_tables: Annotated[
        bool, typer.Option("--keep-tables", help="Let its tables stay as ordinary tables.")
    ] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Drop a topology with its tables, contributions and ledger rows.

    Nothing can bring it back. Refused while attempts are at work, or if a view, a foreign key or
    another topology uses what goes. The source and Airflow's runs stay as they are. With
    --keep-tables, only history and the ledger's columns go; a view of appended rows becomes a
    table, and needs its grants again.
    """
    with ledger() as connection:
        going = what_would_go(connection, topology, keep_tables=keep_tables)
        if not yes:
            for one in going.tables:
                where = f" in {one.database}" if one.database else ""
                say(f"  {one.table}{where}: {one.rows:,} rows", err=True)
            what = "the history of these tables" if keep_tables else "these tables"
            check_asked(
                f"Drop {topology} with {what} and {going.emitted:,} txids, "
                f"{going.committed:,} of them committed? Nothing can bring them back.",
                yes=False,
            )
        drop_topology(connection, topology, keep_tables=keep_tables)
    delete = "; ".join(f"airflow dags delete {dag_id} --yes" for dag_id in going.dags)
    tables = f"{len(going.tables)} tables"
    what = f"{going.emitted:,} txids" if keep_tables else f"{tables} and {going.emitted:,} txids"
    line = (
        f"{topology} is dropped, with {what}. To start again, delete its runs in Airflow: {delete}"
    )
    if keep_tables:
        line = f"{tables} are ordinary tables now. {line}"
    answer({"topology": topology, **plain(going)}, [line], as_json=as_json)


# --- park and skip -------------------------------------------------------------------------------


@verb(
    "reliability park shop 42 --reason 'a broken file, the supplier sends another'",
    "reliability park shop --interval 2013-05 --reason 'a broken file, the supplier sends another'",
)
def park(
    topology: options.Topology,
    reason: options.Reason,
    selection: options.SomeTxids,
    yes: options.Yes = False,
) -> None:
    """Commit txids as empty for now; a later clear or replay processes them.

    Later txids can commit then. Runs that requested it are told that it is not done.
    `reliability skip` commits a txid as empty for good.
    """
    _commit_empty(
        park_txid,
        topology,
        selection,
        signed(reason, person()),
        yes=yes,
        verdict=EmptyVerdict.PARKED,
        done="parked",
        consequence="its run fails until a clear or `reliability replay` processes it",
        follows="Its runs fail, and stay red. To process it later, clear its run, or: "
        "reliability replay {topology} {txid}",
    )


@verb(
    "reliability skip shop 42 --reason 'a test file, not to be counted'",
    "reliability skip shop --interval 2013-05 --reason 'a test file, not to be counted'",
)
def skip(
    topology: options.Topology,
    reason: options.Reason,
    selection: options.SomeTxids,
    yes: options.Yes = False,
) -> None:
    """Commit txids as empty for good; runs that requested them succeed without them.

    Later txids can commit then. Clears, retries, backfills and replays leave it out
    until `reliability unskip`. `reliability park` commits it as empty for now.
    """
    _commit_empty(
        partial(skip_txid, by=person()),
        topology,
        selection,
        reason,
        yes=yes,
        verdict=EmptyVerdict.SKIPPED,
        done="skipped for good",
        consequence="its run succeeds without it, now and whenever it is cleared",
        follows="Its runs succeed without it. To take that back: "
        "reliability unskip {topology} {txid} --reason '…'",
    )


@verb("reliability unskip shop 42 --reason 'it was no test file'")
def unskip(
    topology: options.Topology, txid: Txid, reason: options.Reason, as_json: options.AsJson = False
) -> None:
    """Take a skip back, and print what processes the txid then; no table changes by itself."""
    with ledger(topology) as connection:
        done = unskip_txid(connection, topology, txid, reason, person())
        named = with_intervals(connection, topology, [txid])
    document = {"topology": topology, **plain(done)}
    answer(document, _unskipped(named, done), as_json=as_json)


def _unskipped(txid: Selected, done: Unskipped) -> Iterator[str]:
    topology = txid.topology
    first = f"Run `reliability release {topology}`, and then" if done.is_held else "To process it"
    yield f"{txid} of {topology} is no longer skipped. {first}:"
    yield from each_to_clear([done.run])
    if done.has_committed:
        yield "or replay it from here:"
        yield f"  reliability replay {topology} {done.txid}"


def _commit_empty(
    commit_empty: Callable[[LedgerConnection, str, int, str], list[Committed]],
    topology: str,
    selection: options.SomeTxids,
    reason: str,
    *,
    yes: bool,
    verdict: EmptyVerdict,
    done: str,
    consequence: str,
    follows: str,
) -> None:
    with ledger(topology) as connection:
        selected = selection.select(connection, topology)
        check_all(connection, topology, selected.txids, verdict)
        several = len(selected.txids) > 1
        check_asked(
            f"{selected} of {topology} will commit as empty: nothing of "
            f"{'their batches' if several else 'its batch'} counts, attempts at "
            f"{'them' if several else 'it'} are fenced, and {consequence}. Continue?",
            yes=yes,
        )
        before: list[int] = []
        numbers: dict[int, int] = {}
        for txid in in_order(connection, topology, selected.txids):
            try:
                committed = commit_empty(connection, topology, txid, reason)
            except ReliabilityError:
                if before:
                    are = f"{selected.named(before)} of {topology} {_are(before)}"
                    warn(f"{are} {done}, and the rest is not, because of this:")
                raise
            before.append(txid)
            numbers |= {one.attempt.txid: one.commit_number for one in committed}
        others = with_intervals(connection, topology, sorted(numbers.keys() - {*selected.txids}))
        curr_txid = connection.one("topology_position", topology=topology)["curr_txid"]
    for txid in selected.txids:
        when = "It commits as empty when its turn comes"
        if txid < curr_txid:
            when = "It has committed as empty"
        if txid in numbers:
            when += f", as c={numbers[txid]}"
        what = selected.named([txid])
        say(f"{what} of {topology} is {done}: nothing of its batch counts. {when}.")
        say(follows.format(topology=topology, txid=txid))
    if others.txids:
        say(f"{others} committed too: it was their turn.")
