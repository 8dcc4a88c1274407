"""Commands for maintenance: migrate, sweep, and restored after a restore from backup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import FAILED, FOUND, ledger, names, verb
from reliability.cli.parts import Table, show
from reliability.cli.terminal import say
from reliability.core.errors import ReliabilityError
from reliability.deployment.settings import database_dsn
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate as migrate_database
from reliability.transaction.commit.saved_checkpoint import SavedCheckpoint, read_checkpoint
from reliability.transaction.maintain.sweep import sweep as sweep_topology
from reliability.transaction.topology.databases import TopologyDatabases


@verb("reliability migrate", "reliability migrate --database mart")
def migrate(
    database: Annotated[
        str,
        typer.Option(help="A target database of a State(database=...); by default the ledger's."),
    ] = "",
) -> None:
    """Bring the ledger's schema up to date; safe to repeat and to run concurrently."""
    with LedgerConnection(database_dsn(database), "reliability cli", database) as connection:
        applied = migrate_database(connection)
    for migration in applied:
        say(f"applied {migration.number:04d}_{migration.name}")
    if not applied:
        say("the ledger is up to date")


@verb("reliability sweep", "reliability sweep shop")
def sweep(topology: options.OneOrAll = "") -> None:
    """Fence dead attempts, commit overdue txids, delete rows that can never count.

    The housekeeping DAG runs it every minute, and every task of a topology sweeps its own topology.
    """
    failed = False
    with ledger() as connection:
        for name in names(connection, topology):
            try:
                swept = sweep_topology(connection, name, clean=True)
            except ReliabilityError as error:  # go on with the other topologies
                say(f"{name}: {error}", err=True)
                failed = True
                continue
            say(
                f"{name}: {len(swept.expired)} leases expired, {len(swept.given_up)} requests "
                f"given up, {len(swept.committed)} txids committed, "
                f"{len(swept.cleaned)} attempts cleaned, "
                f"{max((state.txids for state in swept.compacted), default=0)} txids compacted, "
                f"{swept.merged} tables merged"
            )
    if failed:
        raise typer.Exit(FAILED)


# --- after a restore -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The position of a target database, and the positions that the checkpoint allows."""

    topology: str
    database: str
    commit_number: int | None
    expected: tuple[int, ...]
    error: str = ""

    @property
    def agrees(self) -> bool:
        return self.commit_number in self.expected

    @property
    def position(self) -> str:
        number = self.commit_number
        return "has no record of it" if number is None else f"is at c={number}"

    @property
    def says(self) -> str:
        return self.error or ("ok" if self.agrees else "FAIL")


@verb("reliability restored")
def restored() -> None:
    """After a restore from backup: fence all live attempts, and compare the databases.

    Processes may still work for an attempt whose attempt_id will be granted again. Airflow's
    retries begin new attempts.
    """
    with ledger() as connection:
        timeline, fenced = _fence(connection)
        compared = [place for name in names(connection, "") for place in _compare(connection, name)]
    server = (
        "the server does not report its timeline"
        if timeline is None
        else f"the server's timeline is {timeline}"
    )
    say(f"{server}; {fenced} live attempts were fenced")
    if compared:
        rows = [
            (place.topology, place.database, place.commit_number, place.says) for place in compared
        ]
        show([Table(("topology", "database", ">is at c", ""), rows, coloured=[""])])
    if all(place.agrees for place in compared):
        say("next: `reliability reconcile` lists runs that Airflow shows as done and are not")
    else:
        for place in compared:
            if not place.agrees and not place.error:
                say(
                    f"{place.topology}: database {place.database} {place.position}, but must be at "
                    f"c={' or '.join(map(str, place.expected))}: restore all of its databases to "
                    "the same commit number; until then the topology does not commit"
                )
        raise typer.Exit(FOUND)


def _fence(connection: LedgerConnection) -> tuple[int | None, int]:
    with connection.transaction() as tx:
        timeline: int | None = tx.one("server_timeline")["now"]
        fenced = tx.all("fence_all_live_attempts")
        if timeline is not None:
            tx.run("record_timeline", timeline=timeline)
    return timeline, len(fenced)


def _compare(connection: LedgerConnection, topology: str) -> list[Compared]:
    with connection.transaction() as tx:
        saved = read_checkpoint(tx, topology)
    with TopologyDatabases.of(connection, topology) as participants:
        return [_where_is(database, topology, saved) for database in participants]


def _where_is(database: LedgerConnection, topology: str, saved: SavedCheckpoint) -> Compared:
    place = {"topology": topology, "database": database.database}
    try:
        with database.transaction() as tx:
            if tx.first("mirrored_topology", topology=topology) is None:
                number = None
            else:
                number = read_checkpoint(tx, topology).state.commit_number
    except ReliabilityError as error:
        return Compared(**place, commit_number=None, expected=(), error=str(error))
    return Compared(**place, commit_number=number, expected=saved.state.participants_at)
