"""Commands that change what is processed: pause, resume, rollback, release, park, skip, unskip."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
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
from reliability.cli.different_rows import DiffFile, DiffTable, check_target, rows_into
from reliability.cli.output import (
    commands_to_clear,
    format_differences,
    plain_run,
    print_json,
    read_txids,
)
from reliability.core.txids import format_txids, with_noun

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.commit.plan import Committed
    from reliability.transaction.correct.rollback import RolledBack

Txid = Annotated[int, typer.Argument(metavar="TXID", min=1)]


@verb("reliability pause shop --reason 'the warehouse moves'")
def pause(topology: TopologyName, reason: Reason) -> None:
    """Begin no more attempts of a topology; txids in flight are processed and committed."""
    from reliability.transaction.topology.lifecycle import pause

    with ledger() as connection:
        pause(connection, topology, reason)
    typer.echo(f"{topology} is paused: {reason}")


@verb("reliability resume shop")
def resume(topology: TopologyName) -> None:
    """Let attempts of a paused topology begin again."""
    from reliability.transaction.topology.lifecycle import resume

    with ledger() as connection:
        resume(connection, topology)
    typer.echo(f"{topology} is not paused")


# --- rollback ------------------------------------------------------------------------------------


@verb(
    "reliability rollback shop 41 --reason 'May was delivered twice' --dry-run",
    "reliability rollback shop 41 --reason 'May was delivered twice'",
)
def rollback(
    topology: TopologyName,
    txid: Annotated[
        int, typer.Argument(metavar="TXID", min=0, help="The last txid to keep; 0 for none.")
    ],
    reason: Reason,
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
    from reliability.transaction.correct.rollback import roll_back

    check_target(diff, diff_table)
    if (diff or diff_table) and not dry_run:
        raise typer.BadParameter("rows are compared in a dry run: --diff needs --dry-run")
    with ledger() as connection, ExitStack() as closing:
        check_known(connection, topology)
        observer = None
        if diff or diff_table:
            rows = closing.enter_context(rows_into(connection, topology, diff, diff_table))
            observer = rows.observe
        if not dry_run and not yes:
            would = roll_back(connection, topology, txid, reason, dry_run=True)
            check_asked(_rollback_question(topology, would), yes=False)
        done = roll_back(connection, topology, txid, reason, dry_run=dry_run, observer=observer)
    _print_rolled_back(topology, done, as_json=as_json)


_DROPPED = "this drops a decided commit that a database could not carry out"


def _held(done: RolledBack) -> str:
    return format_txids(range(done.held[0], done.held[1] + 1))


def _rollback_question(topology: str, would: RolledBack) -> str:
    changes = "\n".join(
        [*format_differences(would.differences), *([_DROPPED] * bool(would.dropped))]
    )
    first, last = would.held
    return (
        f"{topology} will be rolled back to txid {would.to_txid}. The {last - first + 1} txids "
        f"after it, {_held(would)}, are taken out and held, their attempts fenced and their "
        f"requests closed. What would change:\n{changes}\nRoll back?"
    )


def _print_rolled_back(topology: str, done: RolledBack, *, as_json: bool) -> None:
    is_dry_run = done.commit_number is None
    if as_json:
        return print_json(
            {
                "topology": topology,
                "to_txid": done.to_txid,
                "is_dry_run": is_dry_run,
                "commit_number": done.commit_number,
                "held": _held(done),
                "dropped": done.dropped,
                "differences": list(done.differences),
            }
        )
    if is_dry_run:
        typer.echo(f"{topology} would be rolled back to txid {done.to_txid}. What would change:")
    else:
        number = done.commit_number
        typer.echo(
            f"{topology} was rolled back to txid {done.to_txid} as c={number}. What changed:"
        )
    for line in format_differences(done.differences):
        typer.echo(line)
    if done.dropped:
        typer.echo(_DROPPED)
    if is_dry_run:
        typer.echo(f"{with_noun(_held(done))} would be held")
    else:
        typer.echo(f"{with_noun(_held(done))} held. Next, when the cause is fixed:")
        typer.echo(f"  reliability release {topology}")


# --- release -------------------------------------------------------------------------------------


@verb("reliability release shop", "reliability release shop 42..44")
def release(
    topology: TopologyName,
    txids: Annotated[
        str, typer.Argument(metavar="TXIDS", help="3, 3..5 or 3,7..9; all if left out.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Let held txids be processed again, and print the runs of Airflow that request them.

    Nothing starts by itself: clear the runs, in the order in which they are printed.
    """
    from reliability.transaction.correct.rollback import release

    wanted = read_txids(txids) if txids else None
    with ledger() as connection:
        check_known(connection, topology)
        runs = release(connection, topology, wanted)
    released = {txid for run in runs for txid in run.txids}
    if left := set(wanted or ()) - released:
        warn(f"{with_noun(format_txids(left))} not held")
    if as_json:
        return print_json(
            {
                "topology": topology,
                "released": format_txids(released),
                "runs": [plain_run(run) for run in runs],
            }
        )
    if not runs:
        typer.echo(f"no txid of {topology} was held")
        return
    typer.echo(
        f"{with_noun(format_txids(released))} released. Clear the runs that request them, in this "
        "order:"
    )
    for line in commands_to_clear(runs):
        typer.echo(line)


# --- park and skip -------------------------------------------------------------------------------


@verb("reliability park shop 42 --reason 'a broken file, the supplier sends another'")
def park(topology: TopologyName, txid: Txid, reason: Reason, yes: Yes = False) -> None:
    """Let later txids commit past one for now; a later clear or replay processes it.

    It commits as empty when its turn comes. Runs that requested it are told that it is not done.
    `reliability skip` passes over a txid for good.
    """
    from reliability.transaction.correct.park import park

    _park_or_skip(
        park,
        topology,
        txid,
        reason,
        "its run fails until a clear or `reliability replay` processes it",
        f"txid {txid} is parked: a clear of its run, or `reliability replay {topology} {txid}`, "
        "processes it",
        yes=yes,
    )


@verb("reliability skip shop 42 --reason 'a test file, not to be counted'")
def skip(topology: TopologyName, txid: Txid, reason: Reason, yes: Yes = False) -> None:
    """Let later txids commit past one for good; runs that requested it succeed without it.

    It commits as empty when its turn comes. Clears, retries, backfills and replays leave it out
    until `reliability unskip`. `reliability park` passes over a txid for now.
    """
    from reliability.transaction.correct.park import skip

    _park_or_skip(
        partial(skip, by=person()),
        topology,
        txid,
        reason,
        "its run succeeds without it, now and whenever it is cleared",
        f"txid {txid} is skipped for good: `reliability unskip {topology} {txid}` takes it back",
        yes=yes,
    )


@verb("reliability unskip shop 42 --reason 'it was no test file'")
def unskip(topology: TopologyName, txid: Txid, reason: Reason, as_json: AsJson = False) -> None:
    """Take a skip back, and print what processes the txid then; no table changes by itself."""
    from reliability.transaction.correct.park import unskip

    with ledger() as connection:
        check_known(connection, topology)
        done = unskip(connection, topology, txid, reason, person())
    if as_json:
        return print_json(
            {
                "topology": topology,
                "txid": txid,
                "has_committed": done.has_committed,
                "run": plain_run(done.run),
            }
        )
    typer.echo(f"txid {txid} of {topology} is no longer skipped. Clear its run to process it:")
    for line in commands_to_clear([done.run]):
        typer.echo(line)
    if done.has_committed:
        typer.echo(f"or replay it from here:\n  reliability replay {topology} {txid}")


def _park_or_skip(
    pass_over: Callable[[LedgerConnection, str, int, str], list[Committed]],
    topology: str,
    txid: int,
    reason: str,
    consequence: str,
    state_of_it: str,
    *,
    yes: bool,
) -> None:
    with ledger() as connection:
        check_known(connection, topology)
        check_asked(
            f"Txid {txid} of {topology} commits as empty: nothing of its batch counts, attempts "
            f"at it are fenced, and {consequence}. Continue?",
            yes=yes,
        )
        committed = pass_over(connection, topology, txid, reason)
    for one in committed:
        typer.echo(f"committed {one.attempt} as c={one.commit_number}")
    if txid not in {one.attempt.txid for one in committed}:
        typer.echo(f"txid {txid} commits as empty when its turn comes")
    typer.echo(state_of_it)
