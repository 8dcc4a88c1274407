"""The command line: everything that a person does by hand, over the same calls as Airflow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from reliability.core.errors import ReliabilityError
from reliability.ledger.door import Door
from reliability.settings import Leases, database_dsn

app = typer.Typer(
    help="Exactly-once batch transactions on Airflow, Spark and Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@contextmanager
def _ledger(database: str = "") -> Iterator[Door]:
    """Open the ledger; an error of ours is one message and exit code 1, not a traceback."""
    try:
        door = Door(database_dsn(database), application_name="reliability cli")
        try:
            yield door
        finally:
            door.close()
    except ReliabilityError as error:
        typer.echo(f"reliability: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def migrate(
    database: Annotated[
        str,
        typer.Option(help="A target database of a State(database=...); the ledger's if left out."),
    ] = "",
) -> None:
    """Bring the ledger's schema up to date. Run twice, or by two at once, it is harmless."""
    from reliability.ledger.migrations import migrate

    with _ledger(database) as door:
        applied = migrate(door)
    for migration in applied:
        typer.echo(f"applied {migration.number:04d}_{migration.name}")
    if not applied:
        typer.echo("the ledger is up to date")


@app.command()
def sweep(
    topology: Annotated[str, typer.Argument(help="One topology; all of them if left out.")] = "",
) -> None:
    """Fence what died silently, commit what is overdue, clean what can never count.

    The housekeeping DAG calls it every minute; every task of a topology sweeps as it passes.
    """
    from reliability.ledger.migrations import check_migrated
    from reliability.transaction.sweep import sweep, topologies

    with _ledger() as door:
        check_migrated(door)
        failed = False
        for name in [topology] if topology else topologies(door):
            try:
                swept = sweep(door, name, Leases(), clean=True)
            except ReliabilityError as error:  # one topology's trouble is not the others'
                typer.echo(f"{name}: {error}", err=True)
                failed = True
                continue
            typer.echo(
                f"{name}: {len(swept.expired)} leases expired, {len(swept.given_up)} requests "
                f"given up, {len(swept.committed)} txids committed, "
                f"{len(swept.cleaned)} attempts cleaned"
            )
    if failed:
        raise typer.Exit(1)


@app.command()
def pause(
    topology: Annotated[str, typer.Argument(help="The topology's name.")],
    reason: Annotated[str, typer.Option(help="Why; whoever waits is told.")],
) -> None:
    """Let no attempt of a topology begin; what is in flight is processed and commits."""
    from reliability.ledger.migrations import check_migrated
    from reliability.transaction.topology import pause

    with _ledger() as door:
        check_migrated(door)
        pause(door, topology, reason)
    typer.echo(f"{topology} is paused: {reason}")


@app.command()
def resume(topology: Annotated[str, typer.Argument(help="The topology's name.")]) -> None:
    """Let attempts of a paused topology begin again."""
    from reliability.ledger.migrations import check_migrated
    from reliability.transaction.topology import resume

    with _ledger() as door:
        check_migrated(door)
        resume(door, topology)
    typer.echo(f"{topology} is not paused")


@app.command()
def status() -> None:
    """Show where every topology stands."""
    from rich.console import Console
    from rich.table import Table

    from reliability.ledger.migrations import check_migrated

    with _ledger() as door:
        check_migrated(door)
        with door.transaction() as tx:
            rows = tx.all("topology_status")
    table = Table()
    table.add_column("topology", min_width=max((len(row["topology"]) for row in rows), default=0))
    for name in ("emitted", "committed", "processing", "processed"):
        table.add_column(name, justify="right", min_width=len(name))
    table.add_column("last commit", min_width=len("01-01 00:00"))
    for row in rows:
        last = row["last_committed_at"]
        table.add_row(
            row["topology"],
            str(row["next_txid"] - 1),
            str(row["curr_txid"] - 1),
            str(row["processing"]),
            str(row["processed"]),
            f"{last:%m-%d %H:%M}" if last else "",
        )
    Console(file=sys.stdout).print(table)
    for row in rows:
        if row["paused_reason"]:
            typer.echo(f"{row['topology']} is paused: {row['paused_reason']}")
