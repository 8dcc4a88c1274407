"""The scratch Postgres of the benchmarks: one server, and a database for each measurement."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg2.sql import SQL, Identifier

from benchmarks.job import Database
from benchmarks.places import HOME, ROOT
from benchmarks.postgres import execute_alone, transaction
from dev.services.credentials import SUPERUSER
from dev.services.environment import Environment
from dev.services.ports import HOST
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate

ROLE = "reliability"
#: Room for a whole measurement between two checkpoints; fsync and all else are as by default.
SETTINGS: Mapping[str, str] = {
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
}
TOLD = ("server_version", "fsync", "synchronous_commit", "full_page_writes", *SETTINGS)


@dataclass(frozen=True, slots=True)
class Server:
    environment: Environment

    def database(self, name: str, user: str = ROLE) -> Database:
        return Database(
            host=HOST,
            port=self.environment.postgres.port,
            name=name,
            user=user,
            password=self.environment.credentials.password(user),
        )

    def create(self, name: str, template: str = "template0") -> Database:
        """Make a database as a copy of another; a copy of its files, which is quick."""
        self.drop(name)
        create = "CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY file_copy"
        self._run(create, name, ROLE, template)
        return self.database(name)

    def drop(self, name: str) -> None:
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    @contextmanager
    def copied(self, template: str, name: str) -> Iterator[Database]:
        """Lend a copy of a database, with nothing left to be written for anybody else."""
        try:
            database = self.create(name, template)
            self._run("CHECKPOINT")
            yield database
        finally:
            self.drop(name)

    @contextmanager
    def ledger(self, name: str = ROLE) -> Iterator[tuple[LedgerConnection, Path]]:
        """Lend a new ledger, and a folder for its source files; the environment names both."""
        dsn = self.create(name).libpq
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(RELIABILITY_DSN=dsn, RELIABILITY_HOME=folder)
            with LedgerConnection(dsn) as connection:
                migrate(connection)
                yield connection, Path(folder)
        self.drop(name)

    def env(self) -> dict[str, str]:
        """Return the environment of every worker, in which the server's own programs come first."""
        found = self.environment.env()
        binaries = self.environment.postgres.binaries.folder
        return {**found, "PATH": f"{binaries}:{found['PATH']}", "TZ": "UTC"}

    def settings(self) -> dict[str, str]:
        with transaction(self._admin) as cursor:
            cursor.execute("SELECT name, current_setting(name) FROM unnest(%s) AS name", [[*TOLD]])
            return dict(cursor.fetchall())

    def _run(self, statement: str, *names: str) -> None:
        execute_alone(self._admin, SQL(statement).format(*map(Identifier, names)))

    @property
    def _admin(self) -> Database:
        return self.database("postgres", SUPERUSER)


@contextmanager
def scratch_server() -> Iterator[Server]:
    """Start an empty server, and destroy it in the end."""
    environment = Environment(ROOT, HOME, postgres_settings=SETTINGS)
    with one_run_at_a_time():
        environment.destroy()
        environment.up_postgres()
        try:
            yield Server(environment)
        finally:
            environment.destroy()


@contextmanager
def one_run_at_a_time() -> Iterator[None]:
    """Refuse a second run, which would destroy the server of the first."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "running").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another run of the benchmarks is going on") from None
        yield
