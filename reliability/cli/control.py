"""Commands that change what is processed: pause, resume, rollback, release, park, skip."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
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
    rows_of,
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
    format_differences,
    format_interval,
    plain,
    plain_run,
    print_json,
    read_txids,
    what_to_clear,
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
    with ledger() as connection, ExitStack() as closing:
        check_known(connection, topology)
        observer = None
        if diff or diff_table:
            if not dry_run:
                check_observable(connection, topology)
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

    Nothing starts by itself: `reliability resume-runs` clears exactly what the runs lack.
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
    typer.echo(f"{with_noun(format_txids(released))} released. Nothing starts by itself. Next:")
    for line in what_to_clear(topology, runs):
        typer.echo(line)


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
                typer.echo(f"  {one.table}{where}: {one.rows:,} rows", err=True)
            check_asked(
                f"Drop {topology} with these tables and {going.emitted:,} txids, "
                f"{going.committed:,} of them committed? Nothing can bring them back.",
                yes=False,
            )
        drop_topology(connection, topology)
    if as_json:
        return print_json({"topology": topology, **plain(going)})
    typer.echo(
        f"{topology} is dropped, with {len(going.tables)} tables and {going.emitted:,} txids. To "
        f"start anew, delete its runs in Airflow: airflow dags delete {topology} --yes"
    )


# --- park and skip -------------------------------------------------------------------------------


@verb("reliability park shop 42 --reason 'a broken file, the supplier sends another'")
def park(topology: TopologyName, txid: Txid, reason: Reason, yes: Yes = False) -> None:
    """Let later txids commit past one that cannot be processed; a replay can process it later.

    It commits as empty when its turn comes. Runs that requested it are told that it is not done.
    """
    from reliability.transaction.correct.park import park

    _park_or_skip(park, topology, txid, reason, PARKED, yes=yes)


@verb("reliability skip shop 42 --reason 'a test file, not to be counted'")
def skip(topology: TopologyName, txid: Txid, reason: Reason, yes: Yes = False) -> None:
    """Let later txids commit past one for good; runs that requested it succeed without it.

    It commits as empty when its turn comes.
    """
    from reliability.transaction.correct.park import skip

    _park_or_skip(skip, topology, txid, reason, SKIPPED, yes=yes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """How a verb that passes over a txid names what it did, and what follows."""

    done: str
    consequence: str
    follows: str


PARKED = _Verdict(
    done="parked",
    consequence="its run fails until it is replayed",
    follows="Its runs fail, and stay red. To process it later: "
    "reliability replay {topology} {txid}",
)
SKIPPED = _Verdict(
    done="skipped",
    consequence="its run succeeds without it",
    follows="Its runs succeed without it. To process it all the same: "
    "reliability replay {topology} {txid}",
)


def _park_or_skip(
    pass_over: Callable[[LedgerConnection, str, int, str], list[Committed]],
    topology: str,
    txid: int,
    reason: str,
    verdict: _Verdict,
    *,
    yes: bool,
) -> None:
    with ledger() as connection:
        check_known(connection, topology)
        what = _with_interval(connection, topology, txid)
        check_asked(
            f"{what} of {topology} commits as empty: nothing of its batch counts, attempts "
            f"at it are fenced, and {verdict.consequence}. Continue?",
            yes=yes,
        )
        committed = {one.attempt.txid: one for one in pass_over(connection, topology, txid, reason)}
    own = committed.pop(txid, None)
    when = (
        f"It has committed as empty, as c={own.commit_number}"
        if own
        else ("It commits as empty when its turn comes")
    )
    typer.echo(f"{what} of {topology} is {verdict.done}: nothing of its batch counts. {when}.")
    typer.echo(verdict.follows.format(topology=topology, txid=txid))
    if committed:
        typer.echo(f"{with_noun(format_txids(committed))} committed too: it was their turn.")


def _with_interval(connection: LedgerConnection, topology: str, txid: int) -> str:
    found = rows_of(connection, "transaction_details", topology=topology, txid=txid)
    interval = format_interval(found[0]) if found else ""
    return f"txid {txid}, {interval}," if interval else f"txid {txid}"
