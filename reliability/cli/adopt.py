"""`reliability adopt`: make an existing table a state's, before the first commit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import check_asked, ledger, topology_from_code, verb
from reliability.cli.output import plain
from reliability.cli.parts import answer
from reliability.deployment.settings import person
from reliability.transaction.correct.adopt import Adopted
from reliability.transaction.correct.adopt import adopt as adopt_table


@verb(
    "reliability adopt shop revenue_by_day --table public.revenue_by_day --dry-run",
    "reliability adopt shop revenue_by_day --table public.revenue_by_day --reason 'from dlt'",
    "reliability adopt shop revenue_by_day --table old.revenue",
)
def adopt(
    topology: options.Topology,
    state: Annotated[str, typer.Argument(metavar="STATE")],
    table: Annotated[
        str,
        typer.Option(
            metavar="SCHEMA.TABLE",
            help="The state's own table, which is taken over; or another one, which is copied.",
        ),
    ],
    reason: options.Reason = "",
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    module: options.Module = "",
    as_json: options.AsJson = False,
) -> None:
    """Make the rows of an existing table those of a state, before the topology's first commit.

    Key, types and counts are checked. The rows become what txid 0 has added: no replay changes
    them, and a rollback to 0 returns to them. Without --yes, it asks first.
    """
    with ledger() as connection:
        code = topology_from_code(connection, topology, module)
        it = partial(adopt_table, connection, code, state, table, reason=reason, by=person())
        if not dry_run and not yes:
            check_asked(*_lines(it(dry_run=True)), "Adopt it?", yes=False)
        done = it(dry_run=dry_run)
    answer(plain(done), _lines(done), as_json=as_json)


def _lines(done: Adopted) -> Iterator[str]:
    rows = f"{done.rows:,} rows"
    would, are = ("would become", "would be") if done.is_dry_run else ("has become", "are")
    if done.is_in_place:
        yield f"{done.adopted_table} {would} the table of state {done.state} of {done.topology}."
    else:
        copied = "would be copied" if done.is_dry_run else "were copied"
        yield f"{rows} of {done.adopted_table} {copied} into {done.table}."
    yield f"{rows} {are} the contribution of txid 0: a rollback to 0 returns to them."
    if done.is_dry_run:
        yield from (f"  {statement};" for statement in done.statements)
