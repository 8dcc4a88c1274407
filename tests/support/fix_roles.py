"""A ledger with roles: a session for each of them, and the DSNs of tasks and executors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.services.credentials import quick_secret
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.roles import COORDINATOR, EXECUTOR, KINDS, RolesWanted, make_roles
from reliability.spark.stage import stage_task
from tests.support.fix_postgres import (
    HOSTILE_SETTINGS,
    admin_session,
    alone,
    database_of,
    new_database,
    run_as_admin,
)
from tests.support.pool import PooledConnection

WANTED = RolesWanted(prefix="test")


@dataclass(frozen=True)
class Roles:
    """A database whose ledger has roles, and a session of each by a login role that has it.

    :param dsn: of a superuser
    :param dsns: kind -> DSN of its login role
    """

    dsn: str
    dsns: Mapping[str, str]
    sessions: Mapping[str, LedgerConnection]

    def as_admin(self, *statements: str) -> None:
        run_as_admin(*statements, database=database_of(self.dsn))


def login_of(kind: str) -> str:
    return f"a_{kind}"


@pytest.fixture(scope="session")
def role_template(template) -> str:
    """A database with an empty ledger that has roles, and a login role for each of them."""
    name = f"{template}_of_roles"
    with alone():
        _make_logins()
        run_as_admin(f"CREATE DATABASE {name}")
        with closing(LedgerConnection(f"service=admin dbname={name}")) as admin:
            make_roles(admin, WANTED)
        run_as_admin(*(f"GRANT {WANTED.name(kind)} TO {login_of(kind)}" for kind in KINDS))
    return name


def _make_logins() -> None:
    """Make login roles with the password and the settings of the tests' own, unless they exist."""
    file = Path(os.environ["PGPASSFILE"])
    lines = file.read_text().splitlines()
    own = next(line for line in lines if line.split(":")[3:4] == ["reliability"])
    place, _, password = own.rsplit(":", 2)
    with admin_session() as cursor, file.open("a") as passwords:
        for login in map(login_of, KINDS):
            if not any(f":{login}:" in line for line in lines):
                passwords.write(f"{place}:{login}:{password}\n")
            cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [login])
            if cursor.fetchone() is not None:
                continue
            cursor.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{quick_secret(password)}'")
            for name, value in HOSTILE_SETTINGS.items():
                value = value if name == "search_path" else f"'{value}'"
                cursor.execute(f"ALTER ROLE {login} SET {name} = {value}")


@pytest.fixture
def roles(role_template, monkeypatch) -> Iterator[Roles]:
    """A database of this test's own; tasks and executors have the roles that are for them."""
    monkeypatch.setattr(stage_task, "LedgerConnection", PooledConnection)
    with new_database(role_template) as dsn, ExitStack() as stack:
        admin = dsn.replace("service=reliability", "service=admin")
        with closing(LedgerConnection(admin)) as connection:
            run_as_admin(f"REVOKE TEMPORARY ON DATABASE {database_of(dsn)} FROM PUBLIC")
            make_roles(connection, WANTED)  # a database's own grants are not in its template
        dsns = {kind: f"{dsn} user={login_of(kind)}" for kind in KINDS}
        monkeypatch.setenv("RELIABILITY_DSN", dsns[COORDINATOR])
        monkeypatch.setenv("RELIABILITY_EXECUTOR_DSN", dsns[EXECUTOR])
        sessions = {
            kind: stack.enter_context(LedgerConnection(dsns[kind], "test")) for kind in KINDS
        }
        yield Roles(admin, dsns, sessions)
