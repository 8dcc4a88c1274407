"""Commands that change what is processed, from pause to drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.app import (
    AsJson,
    Reason,
    TopologyName,
    Yes,
    check_asked,
    check_known,
    ledger,
    person,
    verb,
    warn,
)
from reliability.cli.different_rows import (
    DiffFile,
    DiffTable,
    check_observable,
    check_target,
    rows_into,
)
from reliability.cli.output import (
    commands_to_clear,
    format_differences,
    plain,
    plain_run,
    print_json,
    what_to_clear,
)
from reliability.cli.select import (
    FileOption,
    IntervalOption,
    Selected,
    check_selection,
    read_interval,
    select_txids,
    with_intervals,
)
from reliability.cli.terminal import say
from reliability.core.txids import format_intervals, format_txids

if TYPE_CHECKING:
    from reliability.core.rollback_check import AgainstDates
    from reliability.core.spout import Interval
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.commit.next_plan import Committed
    from reliability.transaction.correct.rollback import RolledBack

Txid = Annotated[int, typer.Argument(metavar="TXID", min=1)]
Txids = Annotated[str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9.")]


@verb("reliability pause shop --reason 'the warehouse moves'")
def pause(topology: TopologyName, reason: Reason) -> None:
    """Begin no more attempts of a topology; txids in flight are processed and committed."""
    from reliability.transaction.topology.lifecycle import pause

    with ledger() as connection:
        pause(connection, topology, reason)
    say(f"{topology} is paused: {reason}")


@verb("reliability resume shop")
def resume(topology: TopologyName) -> None:
    """Let attempts of a paused topology begin again."""
    from reliability.transaction.topology.lifecycle import resume

    with ledger() as connection:
        resume(connection, topology)
    say(f"{topology} is resumed: attempts may begin")


# --- rollback ------------------------------------------------------------------------------------


@verb(
    "reliability rollback shop 41 --dry-run",
    "reliability rollback shop 41 --reason 'May was delivered twice'",
    "reliability rollback shop --interval 2013-04 --reason 'May was delivered twice'",
)
def rollback(
    topology: TopologyName,
    txid: Annotated[
        int | None, typer.Argument(metavar="TXID", min=0, help="The last txid to keep; 0 for none.")
    ] = None,
    interval: Annotated[
        str,
        typer.Option(
            metavar="INTERVAL", help="Instead: keep all up to the last txid of this interval."
        ),
    ] = "",
    file: Annotated[
        str, typer.Option(metavar="NAME", help="Instead: up to the last txid that reads this file.")
    ] = "",
    reason: Annotated[
        str, typer.Option(help="The reason; recorded in the ledger. A dry run needs none.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would change.")
    ] = False,
    diff: DiffFile = None,
    diff_table: DiffTable = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Return all states of a topology to what they were after a txid.

    Later txids are held, their attempts fenced and their requests closed, until `reliability
    release`. Without --yes, a dry run first shows what would change and asks for confirmation.
    """
    from reliability.transaction.correct.rollback import against_dates, roll_back

    check_selection("" if txid is None else "1", interval, file)
    check_target(diff, diff_table)
    if not (reason or dry_run):
        raise typer.BadParameter("a rollback needs a --reason, unless it is a --dry-run")
    reason = reason or "a dry run"  # the ledger's log takes none without, and is rolled back
    with ledger() as connection, ExitStack() as closing:
        check_known(connection, topology)
        if txid is None:
            selected = select_txids(connection, topology, "", interval, file)
            selected.show()
            txid = selected.txids[-1]
        dates = against_dates(
            connection, topology, txid, read_interval(interval) if interval else None
        )
        observer = None
        if diff or diff_table:
            if not dry_run:
                check_observable(connection, topology)
            rows = closing.enter_context(rows_into(connection, topology, diff, diff_table))
            observer = rows.observe
        if not dry_run and not yes:
            would = roll_back(connection, topology, txid, reason, dry_run=True)
            txids = _txids_of(connection, topology, would)
            check_asked(*_rollback_question(txids, would, dates), yes=False)
        elif not dry_run:
            say(*dates.lines(), err=True)
        done = roll_back(connection, topology, txid, reason, dry_run=dry_run, observer=observer)
        txids = _txids_of(connection, topology, done)
    _print_rolled_back(txids, done, dates, as_json=as_json)


def _txids_of(connection: LedgerConnection, topology: str, done: RolledBack) -> Selected:
    return with_intervals(connection, topology, [done.to_txid, *_held(done)])


_DROPPED = "this drops a decided commit that a database could not carry out"


def _held(done: RolledBack) -> range:
    return range(done.held[0], done.held[1] + 1)


def _rollback_question(txids: Selected, would: RolledBack, dates: AgainstDates) -> Iterator[str]:
    first, last = would.held
    later = "txid after it" if first == last else f"{last - first + 1} txids after it"
    yield (
        f"{txids.topology} will be rolled back to {txids.named([would.to_txid])}. The {later}, "
        f"{txids.named(_held(would))}, {'is' if first == last else 'are'} taken out and held; "
        "attempts are fenced and requests closed. What would change:"
    )
    yield from format_differences(would.differences)
    if would.dropped:
        yield _DROPPED
    yield from dates.lines()
    yield "Roll back?"


def _print_rolled_back(
    txids: Selected, done: RolledBack, dates: AgainstDates, *, as_json: bool
) -> None:
    is_dry_run = done.commit_number is None
    topology, to, held = txids.topology, txids.named([done.to_txid]), txids.named(_held(done))
    if as_json:
        return print_json(
            {
                "topology": topology,
                "to_txid": done.to_txid,
                "to_interval": format_intervals([txids.intervals.get(done.to_txid)]) or None,
                "is_dry_run": is_dry_run,
                "commit_number": done.commit_number,
                "held": format_txids(_held(done)),
                "dropped": done.dropped,
                "later_that_stay": _by_interval(dates.later_that_stay),
                "earlier_that_go": _by_interval(dates.earlier_that_go),
                "differences": list(done.differences),
            }
        )
    if is_dry_run:
        say(f"{topology} would be rolled back to {to}. What would change:")
    else:
        number = done.commit_number
        say(f"{topology} was rolled back to {to} as c={number}. What changed:")
    for line in format_differences(done.differences):
        say(line)
    if done.dropped:
        say(_DROPPED)
    if is_dry_run:
        say(f"{held} would be held")
        say(*dates.lines())
    else:
        is_ = "is" if done.held[0] == done.held[1] else "are"
        say(f"{held} {is_} held. Next, when the cause is fixed:")
        say(f"  reliability release {topology}")


def _by_interval(found: Mapping[Interval, Sequence[int]]) -> list[dict[str, str]]:
    return [{"interval": str(one), "txids": format_txids(txids)} for one, txids in found.items()]


# --- release -------------------------------------------------------------------------------------


@verb(
    "reliability release shop",
    "reliability release shop 42..44",
    "reliability release shop --interval 2013-05",
)
def release(
    topology: TopologyName,
    txids: Annotated[
        str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9; all if left out.")
    ] = "",
    interval: IntervalOption = "",
    file: FileOption = "",
    as_json: AsJson = False,
) -> None:
    """Let held txids be processed again, and print the runs of Airflow that request them.

    Nothing starts by itself: `reliability resume-runs` clears exactly what the runs lack.
    """
    from reliability.transaction.correct.rollback import release

    check_selection(txids, interval, file, optional=True)
    with ledger() as connection:
        check_known(connection, topology)
        wanted = None
        if txids or interval or file:
            wanted = select_txids(connection, topology, txids, interval, file)
            wanted.show()
        runs = release(connection, topology, wanted.txids if wanted else None)
        released = [txid for run in runs for txid in run.txids]
        named = with_intervals(connection, topology, released)
    if wanted is not None and (left := set(wanted.txids) - set(released)):
        warn(f"{wanted.named(left)} not held")
    if as_json:
        return print_json(
            {
                "topology": topology,
                "released": format_txids(released),
                "runs": [plain_run(run) for run in runs],
            }
        )
    if not runs:
        say(f"no txid of {topology} was held")
        return
    say(f"{named} released. Nothing starts by itself. Next:")
    for line in what_to_clear(topology, runs):
        say(line)


# --- drop ----------------------------------------------------------------------------------------


@verb("reliability drop shop", "reliability drop shop --yes")
def drop(topology: TopologyName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Drop a topology with its tables, contributions and ledger rows, for development.

    Nothing can bring it back. Refused while attempts are live, or if a view, a foreign key or
    another topology uses one of its tables. The source and Airflow's runs stay as they are.
    """
    from reliability.transaction.correct.drop import drop_topology, what_would_go

    with ledger() as connection:
        going = what_would_go(connection, topology)
        if not yes:
            for one in going.tables:
                where = f" in {one.database}" if one.database else ""
                say(f"  {one.table}{where}: {one.rows:,} rows", err=True)
            check_asked(
                f"Drop {topology} with these tables and {going.emitted:,} txids, "
                f"{going.committed:,} of them committed? Nothing can bring them back.",
                yes=False,
            )
        drop_topology(connection, topology)
    if as_json:
        return print_json({"topology": topology, **plain(going)})
    say(
        f"{topology} is dropped, with {len(going.tables)} tables and {going.emitted:,} txids. To "
        f"start anew, delete its runs in Airflow: airflow dags delete {topology} --yes"
    )


# --- park and skip -------------------------------------------------------------------------------


@verb(
    "reliability park shop 42 --reason 'a broken file, the supplier sends another'",
    "reliability park shop --interval 2013-05 --reason 'a broken file, the supplier sends another'",
)
def park(
    topology: TopologyName,
    reason: Reason,
    txids: Txids = "",
    interval: IntervalOption = "",
    file: FileOption = "",
    yes: Yes = False,
) -> None:
    """Commit txids as empty for now; a later clear or replay processes them.

    Later txids can commit then. Runs that requested it are told that it is not done.
    `reliability skip` commits a txid as empty for good.
    """
    from reliability.transaction.correct.park import park

    with _selected(topology, txids, interval, file) as (connection, selected):
        _park_or_skip(park, connection, selected, reason, PARKED, yes=yes)


@verb(
    "reliability skip shop 42 --reason 'a test file, not to be counted'",
    "reliability skip shop --interval 2013-05 --reason 'a test file, not to be counted'",
)
def skip(
    topology: TopologyName,
    reason: Reason,
    txids: Txids = "",
    interval: IntervalOption = "",
    file: FileOption = "",
    yes: Yes = False,
) -> None:
    """Commit txids as empty for good; runs that requested them succeed without them.

    Later txids can commit then. Clears, retries, backfills and replays leave it out
    until `reliability unskip`. `reliability park` commits it as empty for now.
    """
    from reliability.transaction.correct.park import skip

    with _selected(topology, txids, interval, file) as (connection, selected):
        _park_or_skip(partial(skip, by=person()), connection, selected, reason, SKIPPED, yes=yes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """How park and skip name what they did, and what follows."""

    done: str
    consequence: str
    follows: str


PARKED = _Verdict(
    done="parked",
    consequence="its run fails until a clear or `reliability replay` processes it",
    follows="Its runs fail, and stay red. To process it later, clear its run, or: "
    "reliability replay {topology} {txid}",
)
SKIPPED = _Verdict(
    done="skipped for good",
    consequence="its run succeeds without it, now and whenever it is cleared",
    follows="Its runs succeed without it. To take that back: "
    "reliability unskip {topology} {txid} --reason '…'",
)


@verb("reliability unskip shop 42 --reason 'it was no test file'")
def unskip(topology: TopologyName, txid: Txid, reason: Reason, as_json: AsJson = False) -> None:
    """Take a skip back, and print what processes the txid then; no table changes by itself."""
    from reliability.transaction.correct.park import unskip

    with ledger() as connection:
        check_known(connection, topology)
        done = unskip(connection, topology, txid, reason, person())
        named = with_intervals(connection, topology, [txid])
    if as_json:
        return print_json(
            {
                "topology": topology,
                "txid": txid,
                "has_committed": done.has_committed,
                "run": plain_run(done.run),
            }
        )
    say(f"{named} of {topology} is no longer skipped. Clear its run to process it:")
    for line in commands_to_clear([done.run]):
        say(line)
    if done.has_committed:
        say("or replay it from here:")
        say(f"  reliability replay {topology} {txid}")


@contextmanager
def _selected(
    topology: str, txids: str, interval: str, file: str
) -> Iterator[tuple[LedgerConnection, Selected]]:
    check_selection(txids, interval, file)
    with ledger() as connection:
        check_known(connection, topology)
        yield connection, select_txids(connection, topology, txids, interval, file)


def _park_or_skip(
    commit_empty: Callable[[LedgerConnection, str, int, str], list[Committed]],
    connection: LedgerConnection,
    selected: Selected,
    reason: str,
    verdict: _Verdict,
    *,
    yes: bool,
) -> None:
    selected.show()
    topology, several = selected.topology, len(selected.txids) > 1
    check_asked(
        f"{selected} of {topology} will commit as empty: nothing of "
        f"{'their batches' if several else 'its batch'} counts, attempts at "
        f"{'them' if several else 'it'} are fenced, and {verdict.consequence}. Continue?",
        yes=yes,
    )
    committed = {
        one.attempt.txid: one.commit_number
        for txid in selected.txids
        for one in commit_empty(connection, topology, txid, reason)
    }
    for txid in selected.txids:
        number = committed.pop(txid, None)
        when = (
            "It commits as empty when its turn comes"
            if number is None
            else f"It has committed as empty, as c={number}"
        )
        what = selected.named([txid])
        say(f"{what} of {topology} is {verdict.done}: nothing of its batch counts. {when}.")
        say(verdict.follows.format(topology=topology, txid=txid))
    if committed:
        others = with_intervals(connection, topology, sorted(committed))
        say(f"{others.named(others.txids)} committed too: it was their turn.")
