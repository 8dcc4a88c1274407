"""The scratch Postgres of the suite: one server, and a copy of a database for each measurement."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg2
from psycopg2 import sql

from benchmarks.job import Database
from benchmarks.places import HOME, ROOT
from dev.services.credentials import SUPERUSER
from dev.services.environment import Environment
from dev.services.ports import HOST

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
    """The running server."""

    environment: Environment

    def database(self, name: str) -> Database:
        """Name a database for a contestant."""
        return self._database(name, ROLE)

    def create(self, name: str, template: str = "template0") -> Database:
        """Make a database as a copy of another; a copy of its files, which is quick."""
        create = "CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY file_copy"
        self._run(create, name, ROLE, template)
        return self.database(name)

    def drop(self, name: str) -> None:
        """Drop a database if it exists, whoever uses it."""
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    @contextmanager
    def copied(self, template: str, name: str) -> Iterator[Database]:
        """Lend a copy of a database, with nothing left to be written for anybody else."""
        try:
            yield self.create(name, template)
        finally:
            self.drop(name)

    def checkpoint(self) -> None:
        """Write all that earlier work has left."""
        self._run("CHECKPOINT")

    def settings(self) -> dict[str, str]:
        """Return the settings that matter for the figures."""
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            rows = {}
            for name in TOLD:
                cursor.execute(sql.SQL("SHOW {}").format(sql.Identifier(name)))
                (rows[name],) = cursor.fetchone() or ("",)
        return rows

    def _run(self, statement: str, *names: str) -> None:
        with closing(self._connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _connect(self) -> psycopg2.extensions.connection:
        admin = self._database("postgres", SUPERUSER)
        connection = psycopg2.connect(admin.libpq, password=admin.password)
        connection.autocommit = True
        return connection

    def _database(self, name: str, user: str) -> Database:
        return Database(
            host=HOST,
            port=self.environment.postgres.port,
            name=name,
            user=user,
            password=self.environment.credentials.password(user),
        )


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
    with (HOME / "running").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another run of the benchmarks is going on") from None
        yield
