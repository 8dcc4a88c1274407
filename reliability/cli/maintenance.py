"""Commands for maintenance: migrate, sweep, and restored after a restore from backup."""

from __future__ import annotations

from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import FAILED, FOUND, ledger, names, verb
from reliability.cli.parts import Table, show
from reliability.cli.terminal import say
from reliability.core.errors import ReliabilityError
from reliability.deployment.address import address_of
from reliability.ledger import roles
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import (
    LedgerMigration,
    migrations_as_sql,
    missing_migrations,
)
from reliability.ledger.migrations import migrate as migrate_database
from reliability.ledger.queries import queries
from reliability.transaction.maintain.restore import compare_databases
from reliability.transaction.maintain.sweep import sweep as sweep_topology
from reliability.transaction.topology.server import fence_every_attempt

_UP_TO_DATE = "the ledger is up to date"


@verb(
    "reliability migrate",
    "reliability migrate --check",
    "reliability migrate --database mart",
    "reliability migrate --roles --plan",
)
def migrate(
    database: Annotated[
        str,
        typer.Option(help="A target database of a State(database=...); by default the ledger's."),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is missing; exit code 3 if anything is.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only print the statements, as a script for psql.")
    ] = False,
    with_roles: Annotated[
        bool, typer.Option("--roles", help="Make the ledger's roles too, and grant their rights.")
    ] = False,
    prefix: Annotated[
        str, typer.Option(help="With --roles: their names are it, _ and the kind.")
    ] = roles.PREFIX,
    schema: Annotated[
        list[str] | None,
        typer.Option(help="With --roles: where new targets may be made; by default public."),
    ] = None,
    page_acts: Annotated[
        bool, typer.Option("--page-acts", help="With --roles: a person may act on the page.")
    ] = False,
) -> None:
    """Bring the ledger's schema up to date; safe to repeat and to run concurrently.

    Migrate before you install the next release: the code of this release goes on meanwhile.

    With --roles, the first time as a superuser, or as a role with CREATEROLE that owns the
    database; later as one that has the owner's role.
    """
    if check and (plan or with_roles):
        raise typer.BadParameter("--check cannot be combined with --plan or --roles")
    with LedgerConnection(address_of(database), "reliability cli") as connection:
        if with_roles:
            wanted = roles.RolesWanted(
                prefix=prefix, schemas=tuple(schema or roles.SCHEMAS), page_acts=page_acts
            )
            if plan:
                _say_script(roles.roles_as_sql(connection, wanted))
            else:
                done = roles.make_roles(connection, wanted)
                say(*(done or ["the ledger is up to date, and its roles have their rights"]))
        elif plan:
            _say_script(migrations_as_sql(connection))
        elif not check:
            applied = [f"applied {migration}" for migration in migrate_database(connection)]
            say(*(applied or [_UP_TO_DATE]))
        elif missing := missing_migrations(connection):
            say(*map(_missing_line, missing))
            raise typer.Exit(FOUND)
        else:
            say(_UP_TO_DATE)


def _say_script(statements: list[str]) -> None:
    if statements:
        script = [queries()["begin_script"], *statements, "COMMIT"]
        text = "".join(f"{one.rstrip().rstrip(';')};\n" for one in script)
        say(*text.splitlines())


def _missing_line(migration: LedgerMigration) -> str:
    oldest = migration.oldest_code
    if oldest == migration.number:
        return f"missing {migration}: code that does not know it stops; install this release first"
    return f"missing {migration}: code that knows migration {oldest:04d} goes on"


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


@verb("reliability restored")
def restored() -> None:
    """After a restore from backup: fence all live attempts, and compare the databases.

    Processes may still work for an attempt whose attempt_id will be granted again. Airflow's
    retries begin new attempts.
    """
    with ledger() as connection:
        with connection.transaction() as tx:
            timeline = tx.one("server_timeline")["now"]
            fenced = fence_every_attempt(tx)
            if timeline is not None:
                tx.run("record_timeline", timeline=timeline)
        compared = [
            place for name in names(connection, "") for place in compare_databases(connection, name)
        ]
    server = (
        "the server does not report its timeline"
        if timeline is None
        else f"the server's timeline is {timeline}"
    )
    say(f"{server}; {len(fenced)} live attempts were fenced")
    if compared:
        rows = [
            (c.topology, c.database, c.commit_number, c.error or ("ok" if c.agrees else "FAIL"))
            for c in compared
        ]
        show([Table(("topology", "database", ">is at c", ""), rows, coloured=[""])])
    if all(place.agrees for place in compared):
        say("next: `reliability reconcile` lists runs that Airflow shows as done and are not")
    else:
        say(*(str(place) for place in compared if not place.agrees and not place.error))
        raise typer.Exit(FOUND)
