"""Commands for maintenance: migrate, sweep, and restored after a restore from backup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from reliability.cli.app import FAILED, FOUND, OneOrAll, ledger, names, verb
from reliability.cli.output import print_table
from reliability.cli.terminal import say
from reliability.core.errors import ReliabilityError

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.commit.saved_checkpoint import SavedCheckpoint
    from reliability.transaction.topology.databases import TargetDatabase


@verb("reliability migrate", "reliability migrate --database mart")
def migrate(
    database: Annotated[
        str,
        typer.Option(help="A target database of a State(database=...); by default the ledger's."),
    ] = "",
) -> None:
    """Bring the ledger's schema up to date; safe to repeat and to run concurrently."""
    from reliability.ledger.migrations import migrate

    with ledger(database, migrated=False) as connection:
        applied = migrate(connection)
    for migration in applied:
        say(f"applied {migration.number:04d}_{migration.name}")
    if not applied:
        say("the ledger is up to date")


@verb("reliability sweep", "reliability sweep shop")
def sweep(topology: OneOrAll = "") -> None:
    """Fence dead attempts, commit overdue txids, delete rows that can never count.

    The housekeeping DAG runs it every minute, and every task of a topology sweeps its own topology.
    """
    from reliability.transaction.maintain.sweep import sweep

    failed = False
    with ledger() as connection:
        for name in names(connection, topology):
            try:
                swept = sweep(connection, name, clean=True)
            except ReliabilityError as error:  # go on with the other topologies
                say(f"{name}: {error}", err=True)
                failed = True
                continue
            say(
                f"{name}: {len(swept.expired)} leases expired, {len(swept.given_up)} requests "
                f"given up, {len(swept.committed)} txids committed, "
                f"{len(swept.cleaned)} attempts cleaned, "
                f"{max((one.txids for one in swept.compacted), default=0)} txids compacted, "
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
        compared = [one for name in names(connection, "") for one in _compare(connection, name)]
    said = (
        "the server does not report its timeline"
        if timeline is None
        else f"the server's timeline is {timeline}"
    )
    say(f"{said}; {fenced} live attempts were fenced")
    if compared:
        print_table(
            "",
            {"topology": "left", "database": "left", "is at c": "right", "": "left"},
            [(one.topology, one.database, one.commit_number, one.says) for one in compared],
            coloured=[""],
        )
    if all(one.agrees for one in compared):
        say("next: `reliability reconcile` lists runs that Airflow shows as done and are not")
    else:
        for one in compared:
            if not one.agrees and not one.error:
                say(
                    f"{one.topology}: database {one.database} {one.position}, but must be at "
                    f"c={' or '.join(map(str, one.expected))}: restore all of its databases to "
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
    from reliability.transaction.commit.saved_checkpoint import read_checkpoint
    from reliability.transaction.topology.databases import TopologyDatabases

    with connection.transaction() as tx:
        saved = read_checkpoint(tx, topology)
    with TopologyDatabases.of(connection, topology) as participants:
        return [_where_is(database, topology, saved) for database in participants]


def _where_is(database: TargetDatabase, topology: str, saved: SavedCheckpoint) -> Compared:
    from reliability.transaction.commit.saved_checkpoint import read_checkpoint

    place = {"topology": topology, "database": database.name}
    try:
        with database.connection.transaction() as tx:
            if tx.first("mirrored_topology", topology=topology) is None:
                number = None
            else:
                number = read_checkpoint(tx, topology).state.commit_number
    except ReliabilityError as error:
        return Compared(**place, commit_number=None, expected=(), error=str(error))
    return Compared(**place, commit_number=number, expected=saved.state.participants_at)
