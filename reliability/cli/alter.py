"""`reliability alter`: take the code's definitions of states after the first commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import AsJson, Module, TopologyName, ledger, topology_from_code, verb
from reliability.cli.output import print_json
from reliability.cli.terminal import say
from reliability.core.errors import AlterNotPossible
from reliability.core.txids import format_txids

if TYPE_CHECKING:
    from reliability.transaction.topology.alter import Alteration, AlteredState


@verb(
    "reliability alter shop",
    "reliability alter shop --yes --reason 'the report needs the number of returns'",
)
def alter(
    topology: TopologyName,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, as without --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make the change.")] = False,
    reason: Annotated[str, typer.Option(help="The reason; recorded in the ledger.")] = "",
    module: Module = "",
    as_json: AsJson = False,
) -> None:
    """Take the states as the pipeline's code defines them, after the first commit.

    Shows what differs, the statements, and what happens to history; --yes makes the change. Live
    attempts are fenced, and their tasks begin again by themselves.
    """
    from reliability.transaction.topology.alter import alter, plan_alteration

    if yes and (dry_run or not reason.strip()):
        raise typer.BadParameter("--yes needs a --reason, and cannot be combined with --dry-run")
    with ledger() as connection:
        code = topology_from_code(connection, topology, module)
        found = plan_alteration(connection, code)
        is_done = yes and not found.refused
        if is_done:
            found = alter(connection, code, reason)
    if as_json:
        print_json(_document(found, is_dry_run=not is_done))
    else:
        for line in _lines(found, is_done=is_done):
            say(line)
    if found.refused:
        names = ", ".join(state.state for state in found.refused)
        raise AlterNotPossible(f"{topology}: nothing was changed, because of state {names}")


def _document(found: Alteration, *, is_dry_run: bool) -> dict[str, Any]:
    return {
        "topology": found.topology,
        "is_dry_run": is_dry_run,
        "commit_number": found.commit_number,
        "counts_from": found.counts_from,
        "fenced": found.fenced,
        "fillable": format_txids(found.fillable),
        "unfillable": format_txids(found.unfillable),
        "keep": list(found.kept),
        "states": [
            {
                "state": state.state,
                "table": state.table,
                "differences": list(state.differences),
                "statements": list(state.statements),
                "added": list(state.added),
                "goes": list(state.goes),
                "refusal": state.refusal or None,
            }
            for state in found.states
        ],
    }


def _lines(found: Alteration, *, is_done: bool) -> Iterator[str]:
    for state in found.states:
        yield from _lines_of_state(found, state)
    for line in found.kept:
        is_kept = is_done and found.states
        yield f"{line}: {'done' if is_kept else 'the next run that is emitted applies it'}"
    fenced = f"{found.fenced} live attempt{'' if found.fenced == 1 else 's'}"
    if found.is_free:
        yield (
            f"nothing of {found.topology} has committed: the next emission or attempt takes the "
            "definitions of the code by itself"
        )
    elif not found.states:
        yield f"the states of {found.topology} are as the code defines them"
    elif is_done:
        yield (
            f"{found.topology} is altered; fenced: {fenced}, whose tasks begin again by themselves"
        )
    elif not found.refused:
        yield (
            f"nothing was changed; {fenced} would be fenced. Next: "
            f"reliability alter {found.topology} --yes --reason TEXT"
        )


def _lines_of_state(found: Alteration, state: AlteredState) -> Iterator[str]:
    from reliability.transaction.inspect.lacking_values import how_to_fill

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
        rest = how_to_fill(found.topology, found.fillable, found.unfillable)
        yield (
            f"  history: {', '.join(state.added)} counts from txid {found.counts_from}"
            f"{f'; {rest}' if rest else ''}"
        )
    else:
        yield "  history: contributions stay as they are"
