"""Take the code's definitions of states, before and after the first commit; say what changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from reliability.cli import options
from reliability.cli.app import FOUND, ledger, topology_from_code, verb
from reliability.cli.output import plain, print_json
from reliability.cli.terminal import say
from reliability.core.errors import AlterNotPossible
from reliability.core.texts import signed
from reliability.core.txids import format_txids
from reliability.deployment.address import address_of
from reliability.deployment.settings import person
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import check_coordinator
from reliability.ledger.migrations import missing_migrations
from reliability.transaction.topology.alter import (
    Alteration,
    AlteredState,
    how_to_fill,
    plan_alteration,
)
from reliability.transaction.topology.alter import alter as alter_tables
from reliability.transaction.topology.lifecycle import declare as declare_topology


@verb("reliability declare shop", "reliability declare shop --module spark_apps.shop")
def declare(topology: options.Topology, module: options.Module = "") -> None:
    """Make the tables of a topology before its first run, as the owner of the ledger.

    A run does so itself if its role may. Safe to repeat. Before the first commit it takes changed
    definitions too; later `reliability alter` does.
    """
    with ledger("" if module else topology) as connection:
        declare_topology(connection, topology_from_code(connection, topology, module))
    say(f"{topology} is declared")


@verb(
    "reliability alter shop",
    "reliability alter shop --yes --reason 'the report needs the number of returns'",
    "reliability alter shop --auto --module spark_apps.shop",
)
def alter(
    topology: options.Topology,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, as without --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make the change.")] = False,
    auto: Annotated[
        bool,
        typer.Option(
            "--auto",
            help="For a deployment: make the change if nothing is lost, otherwise exit with 3.",
        ),
    ] = False,
    reason: options.Reason = "",
    module: options.Module = "",
    as_json: options.AsJson = False,
) -> None:
    """Take the states as the pipeline's code defines them, after the first commit.

    Shows what differs, the statements, and what happens to history; --yes makes the change. Live
    attempts are fenced, and their tasks begin again by themselves.
    """
    if yes and (dry_run or not reason.strip()):
        raise typer.BadParameter("--yes needs a --reason, and cannot be combined with --dry-run")
    if auto and (yes or dry_run):
        raise typer.BadParameter("--auto cannot be combined with --yes or --dry-run")
    with ledger() as connection:
        code = topology_from_code(connection, topology, module)
        alteration = plan_alteration(connection, code)
        is_done = (yes and not alteration.refused) or (auto and alteration.loses_nothing)
        if is_done:
            why = signed(reason or "its code has changed", person())
            alteration = alter_tables(connection, code, why)
    if as_json:
        print_json(_document(alteration, is_dry_run=not is_done))
    else:
        for line in _lines(alteration, is_done=is_done):
            say(line)
    if auto and not is_done:
        raise typer.Exit(FOUND)
    if alteration.refused:
        names = ", ".join(state.state for state in alteration.refused)
        raise AlterNotPossible(f"{topology}: nothing was changed, because of state {names}")


@verb("reliability plan shop --module spark_apps.shop", "reliability plan shop returns")
def plan(
    topologies: Annotated[list[str], typer.Argument(metavar="TOPOLOGY…", help="Of this code.")],
    module: options.Module = "",
    as_json: options.AsJson = False,
) -> None:
    """Say what this code would change in the ledger; exit code 3 if it would change anything.

    That is the migrations that the ledger lacks, and what `reliability alter` would do. Run it on a
    pull request, with the code that it brings. It reads tables of changed states, to count what
    would go: with roles, the page's may.
    """
    with LedgerConnection(address_of(), "reliability plan") as connection:
        missing = missing_migrations(connection)
        if missing:  # the states are compared by statements of this release
            alterations = []
        else:
            alterations = [
                plan_alteration(connection, topology_from_code(connection, name, module))
                for name in topologies
                if check_coordinator(connection, name)
            ]
    if as_json:
        changes = [_document(one, is_dry_run=True) for one in alterations]
        print_json({"migrations": [str(one) for one in missing], "topologies": changes})
    else:
        for migration in missing:
            say(f"the ledger lacks migration {migration}: `reliability migrate`, then plan again")
        for alteration in alterations:
            for line in _lines(alteration, is_done=False):
                say(line)
        for name in topologies:
            if not missing and name not in {one.topology for one in alterations}:
                say(
                    f"{name} is new: `reliability declare`, or its first emission, makes its tables"
                )
    if missing or any(one.states for one in alterations):
        raise typer.Exit(FOUND)


def _document(alteration: Alteration, *, is_dry_run: bool) -> dict[str, Any]:
    txids = {name: format_txids(getattr(alteration, name)) for name in ("fillable", "unfillable")}
    own = ("state", "table", "differences", "statements", "added", "goes", "refusal")
    states = [{name: getattr(state, name) for name in own} for state in alteration.states]
    kept = {"keep": alteration.kept, "is_dry_run": is_dry_run}
    return {**plain(alteration), **txids, **kept, "states": states}


def _lines(alteration: Alteration, *, is_done: bool) -> Iterator[str]:
    for state in alteration.states:
        yield from _lines_of_state(alteration, state)
    for line in alteration.kept:
        is_kept = is_done and alteration.states
        yield f"{line}: {'done' if is_kept else 'the next run that is emitted applies it'}"
    fenced = f"{alteration.fenced} live attempt{'' if alteration.fenced == 1 else 's'}"
    if alteration.is_free and not alteration.refused:
        yield (
            f"nothing of {alteration.topology} has committed: the next emission or attempt takes "
            "the definitions of the code by itself"
        )
    elif not alteration.states:
        yield f"the states of {alteration.topology} are as the code defines them"
    elif is_done:
        yield (
            f"{alteration.topology} is altered; fenced: {fenced}, whose tasks begin again by "
            "themselves"
        )
    elif not alteration.refused:
        yield (
            f"nothing was changed; {fenced} would be fenced. Next: "
            f"reliability alter {alteration.topology} --yes --reason TEXT"
        )


def _lines_of_state(alteration: Alteration, state: AlteredState) -> Iterator[str]:
    yield f"{state.state} ({state.table})"
    for difference in state.differences:
        yield f"  {difference}"
    if state.refusal:
        yield f"  not possible: {state.refusal}"
        return
    for gone in state.goes:
        yield f"  lost: {gone}"
    yield "  in the ledger's database:"
    for statement in state.statements:
        yield f"    {statement};"
    if state.added:
        rest = how_to_fill(alteration.topology, alteration.fillable, alteration.unfillable)
        yield (
            f"  history: {', '.join(state.added)} counts from txid {alteration.counts_from}"
            f"{f'; {rest}' if rest else ''}"
        )
    else:
        yield "  history: contributions stay as they are"
