"""`reliability erase`: take the rows of persons out of everything that the ledger knows of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import check_asked, ledger, verb
from reliability.cli.output import plain
from reliability.cli.parts import answer
from reliability.deployment.settings import person
from reliability.transaction.correct.erase import Erased, persons_where
from reliability.transaction.correct.erase import erase as erase_persons

FROM_STDIN = "-"


@verb(
    "reliability erase shop --key customer=17 --dry-run",
    "reliability erase shop --key customer=17 --key email=ann@shop.example --reason 'request 4711'",
    "reliability erase shop --key customer=- --yes --reason 'requests of May' < customers.txt",
    "reliability erase shop --key order --state orders --where 'customer = 17' --dry-run",
)
def erase(
    topology: options.Topology,
    key: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN=VALUE",
            help="A person: rows with this value go. With `COLUMN=-`, each line of stdin is a "
            "value; with --where only the COLUMN. May be repeated.",
        ),
    ],
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="The persons are the values of the COLUMN in rows of a state's table that meet "
            "this SQL condition.",
        ),
    ] = "",
    state: Annotated[
        str,
        typer.Option(metavar="STATE", help="The state for --where, if several have the COLUMN."),
    ] = "",
    reason: options.ReasonOfChange = "",
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete the rows of persons from tables, contributions and the quarantine, and keep them out.

    Every later attempt leaves them out, by a salted hash of the value. Live attempts are fenced
    and begin again. What the rows have added to states without the column stays. Without --yes, a
    dry run first shows what would go and asks for confirmation.
    """
    if not (reason or dry_run):
        raise typer.BadParameter("an erasure needs a --reason, unless it is a --dry-run")
    named = [_name(text, has_value=not where) for text in key]
    if [value for _, value in named].count(FROM_STDIN) > 1:
        raise typer.BadParameter("stdin is for one COLUMN=- only", param_hint="--key")
    with ledger(topology) as connection:
        if where:
            keys = [
                found
                for column, _ in named
                for found in persons_where(connection, topology, column, where, state)
            ]
        else:
            keys = [found for column, value in named for found in _values(column, value)]
        it = partial(erase_persons, connection, topology, keys, reason=reason, by=person())
        if not dry_run and not yes:
            question = "Erase them? Nothing can bring them back."
            check_asked(*_lines(it(dry_run=True)), question, yes=False)
        done = it(dry_run=dry_run)
    answer(plain(done), _lines(done), as_json=as_json)


def _name(text: str, *, has_value: bool) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not column or bool(equals) is not has_value:
        wanted = "COLUMN=VALUE" if has_value else "the COLUMN alone, with --where"
        raise typer.BadParameter(f"write {wanted}", param_hint="--key")
    return column, value


def _values(column: str, value: str) -> Iterator[tuple[str, str]]:
    if value != FROM_STDIN:
        yield column, value
        return
    try:
        yield from ((column, line.rstrip("\r\n")) for line in sys.stdin or () if line.strip())
    except UnicodeDecodeError as error:
        raise typer.BadParameter("stdin is not in UTF-8", param_hint="--key") from error


def _lines(done: Erased) -> Iterator[str]:
    would = "would be erased" if done.is_dry_run else "erased"
    persons = "1 person" if len(done.keys) == 1 else f"{len(done.keys):,} persons"
    yield f"{done.topology}: {persons} {would}:"
    for one in done.keys[:5]:
        yield f"  {one['column']}: hash {one['hash']}"
    for gone in done.states:
        yield f"  {gone.state}: {gone.rows:,} rows, and {gone.staged:,} staged or contributed"
    yield f"  quarantine: {done.quarantined:,} rows, {done.corrections:,} corrections"
    yield f"  examples of rows: {done.examples:,}; texts that may quote rows: {done.texts:,}"
    if done.fenced:
        yield f"  {done.fenced:,} live attempts fenced: their tasks begin again"
    if done.totals:
        yield f"What they have added to {', '.join(done.totals)} stays: these have no such column."
    if done.unclear:
        yield (
            f"{done.unclear:,} rows in quarantine stay that may be theirs: look at them with "
            f"`reliability quarantine show {done.topology}`."
        )
