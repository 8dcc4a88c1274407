"""All access to Postgres: connections, transactions and named statements."""

from __future__ import annotations

import logging
import random
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, cast

import psycopg2
from psycopg2.extensions import connection as Connection
from psycopg2.extensions import cursor as Cursor
from psycopg2.extras import RealDictCursor
from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.errors import (
    LedgerCorruption,
    LedgerUnavailable,
    ReliabilityError,
    TextNotStorable,
    TopologyUnknown,
)
from reliability.core.names import session_name
from reliability.core.texts import with_storable_prose
from reliability.deployment.address import DatabaseAddress
from reliability.ledger.failures import is_refused, translate
from reliability.ledger.queries import queries
from reliability.ledger.times import read_all_times

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]

CONNECT_TIMEOUT_SECONDS = 10
#: How long a Spark driver, and its tasks with the rows in their spools, wait for a session.
SPARK_PATIENCE_SECONDS = 300.0
COPY_CHUNK_BYTES = 1 << 20


class CopySource(Protocol):
    """A source of bytes for COPY."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, empty at the end."""


class _Source:
    """Reads rows for COPY, and keeps the error that ends them."""

    def __init__(self, rows: CopySource) -> None:
        self._rows = rows
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return self._rows.read(size)
        except BaseException as error:
            self.error = error
            raise


class DatabaseTransaction:
    """A transaction; runs statements by name with named parameters.

    Its BEGIN, and what is queued, goes in one round trip with the next statement.

    :param begin: the statements that begin it; empty if it has begun
    :param begin_next: the statements that begin one in one round trip, for `commit_and_ask`
    :param is_at_once: it is one itself, see `LedgerConnection.in_one_round_trip`
    """

    def __init__(
        self, cursor: Cursor, begin: str = "", begin_next: str = "", *, is_at_once: bool = False
    ) -> None:
        self._cursor = cursor
        self._begin = begin
        self._begin_next = begin_next
        self._queued: list[bytes] = []
        self._is_at_once = is_at_once
        self.is_committed = False

    @property
    def cursor(self) -> Cursor:
        """Return the cursor, for what is not a named statement."""
        self.send_queued()
        return self._cursor

    def queue(self, statement: str | Composable, **parameters: Any) -> None:
        """Send a statement with the next one: it needs no answer, and raises if it must not go on.

        What it raises is raised by the next statement, or by the end of the transaction.
        """
        if self.is_committed:
            raise RuntimeError("the transaction has committed")
        self._queued.append(self._text(statement, parameters))

    def run_and_commit(self, statement: str, **parameters: Any) -> None:
        """Run the last statement in one round trip with COMMIT, to keep its locks short."""
        self.queue(statement, **parameters)
        self.commit()

    def commit(self) -> None:
        """Commit, unless that is done; called when the transaction's block ends."""
        has_begun_nothing = self._begin and not self._queued
        if self.is_committed or has_begun_nothing:
            return
        if not self._is_at_once:
            self.queue("commit")
        self.send_queued()
        self.is_committed = True

    def commit_and_ask(self, statement: str, **parameters: Any) -> Row:
        """Commit, and in the same round trip read a row in a transaction of its own.

        What this raises does not tell whether the transaction has committed.
        """
        self.queue("commit")
        self._queued.append(self._begin_next.encode())
        row = self.one(statement, **parameters)
        self.is_committed = True
        return row

    def copy(self, statement: str, rows: CopySource) -> None:
        """COPY rows in; calls `rows.read` until it returns nothing, and raises what that raises."""
        source = _Source(rows)
        try:
            # psycopg2's stubs require readline too; its code only calls read
            self.cursor.copy_expert(statement, source, COPY_CHUNK_BYTES)  # type: ignore[arg-type]
        except psycopg2.Error:
            if source.error is not None:  # psycopg2 makes a text of it
                raise source.error from None
            raise

    def run(self, statement: str | Composable, **parameters: Any) -> int:
        """Run a statement and return how many rows it affected."""
        self._execute(statement, parameters)
        return self.cursor.rowcount

    def all(self, statement: str | Composable, **parameters: Any) -> list[Row]:
        """Run a statement and return its rows."""
        self._execute(statement, parameters)
        return cast(list[Row], self.cursor.fetchall())

    def first(self, statement: str | Composable, **parameters: Any) -> Row | None:
        """Run a statement and return its first row, None if there is none."""
        self._execute(statement, parameters)
        return cast("Row | None", self.cursor.fetchone())

    def one(self, statement: str | Composable, **parameters: Any) -> Row:
        """Run a statement that must find a row.

        :raises TopologyUnknown: there is none, as its topology was dropped
        :raises LedgerCorruption: there is none
        """
        row = self.first(statement, **parameters)
        if row is None:
            raise _lacking(self, statement, parameters)
        return row

    def text_of(self, statement: Composable) -> str:
        """Return a composed statement as text; it is not sent."""
        text: str = statement.as_string(self._cursor)
        return text

    def storable(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return them with what the database cannot store escaped in their free text."""
        encoding = self._cursor.connection.get_parameter_status("server_encoding") or "UTF8"
        return with_storable_prose(parameters, encoding)

    def filled(self, statement: str | Composable, **parameters: Any) -> str:
        """Return a statement with its parameters as text; it is not sent."""
        return self._text(statement, parameters).decode()

    def _execute(self, statement: str | Composable, parameters: Mapping[str, Any]) -> None:
        self.queue(statement, **parameters)
        self.send_queued()

    def send_queued(self) -> None:
        if self._begin:
            self._queued.insert(0, self._begin.encode())
        if not self._queued:
            return
        together, self._queued, self._begin = b";\n".join(self._queued), [], ""
        self._cursor.execute(together)
        self.is_committed = self._is_at_once

    def _text(self, statement: str | Composable, parameters: Mapping[str, Any]) -> bytes:
        if isinstance(statement, str):
            text = queries()[statement]
        else:
            text = _composed(statement, self._cursor)
        try:
            return self._cursor.mogrify(text, self.storable(parameters))
        except ValueError as error:  # psycopg2 raises this for NUL
            raise TextNotStorable(str(error)) from error


def _lacking(
    ledger: Ledger, statement: str | Composable, parameters: Mapping[str, Any]
) -> ReliabilityError:
    topology = parameters.get("topology")
    if topology and ledger.first("mirrored_topology", topology=topology) is None:
        return TopologyUnknown(f"the ledger has no topology called {topology}")
    return LedgerCorruption(f"{statement} found no row for {parameters}")


def _composed(statement: Composable, cursor: Cursor) -> str:
    """Return a composed statement as text in which only its SQL has the places of parameters.

    psycopg2 would take % in a name or a value for one.
    """
    if isinstance(statement, SQL):
        return statement.string
    if isinstance(statement, Composed):
        return "".join([_composed(part, cursor) for part in statement.seq])
    text: str = statement.as_string(cursor)
    return text.replace("%", "%%") if isinstance(statement, Identifier | Literal) else text


class LedgerConnection:
    """A session with Postgres, opened when needed and reopened after a loss.

    :param address: where the database is, or libpq's connection string of the ledger's own; its
        credentials are asked for whenever a session is opened
    :param opens_within: for how many seconds to try again while there is no server that takes
        writes, or no place for a session
    :param reads_only: a standby will do, also with `opens_within`
    """

    def __init__(
        self,
        address: DatabaseAddress | str,
        application_name: str = "reliability",
        *,
        opens_within: float = 0.0,
        reads_only: bool = False,
    ) -> None:
        self.address = DatabaseAddress(dsn=address) if isinstance(address, str) else address
        self.application_name = session_name(application_name)
        self.opens_within = opens_within
        self._reads_only = reads_only
        self._connection: Connection | None = None
        self._pins = ""
        self._is_standby = False
        self._timeline: int | None = None

    @property
    def dsn(self) -> str:
        """Return what libpq is told of the address, which has no secret."""
        return self.address.dsn

    @property
    def database(self) -> str:
        """Return the name of the database, which its errors say; empty for the ledger's own."""
        return self.address.database

    @contextmanager
    def transaction(
        self, *, reads_only: bool = False, patience: float | None = None
    ) -> Iterator[DatabaseTransaction]:
        """Open a transaction; it commits when the block ends and rolls back when it raises.

        Driver errors are raised as errors of this package. If the answer to COMMIT is lost,
        LedgerUnavailable is raised: the caller must read the ledger again, not guess (G8).

        :param reads_only: Postgres rejects every write; also works on a standby
        :param patience: how many seconds a statement waits for a lock, by default 10
        """
        with self._session() as cursor:
            if not reads_only:
                self._check_takes_writes()
            begin = self._begin("begin_reading" if reads_only else "begin")
            transaction = DatabaseTransaction(cursor, begin, self._begin("begin_at_once"))
            if patience is not None:
                transaction.queue("set_lock_timeout", seconds=patience)
            yield transaction
            transaction.commit()

    @contextmanager
    def in_one_round_trip(self) -> Iterator[DatabaseTransaction]:
        """Open a transaction of one round trip: what is queued, and then one statement.

        It has committed when the statement returns, so what the block raises afterwards does not
        roll it back. Errors are those of `transaction`.
        """
        with self._session() as cursor:
            self._check_takes_writes()
            transaction = DatabaseTransaction(cursor, self._begin("begin_at_once"), is_at_once=True)
            yield transaction
            transaction.commit()

    def run(self, statement: str | Composable, **parameters: Any) -> int:
        """Run one statement in one round trip, and return how many rows it affected."""
        with self.in_one_round_trip() as tx:
            return tx.run(statement, **parameters)

    def all(self, statement: str | Composable, **parameters: Any) -> list[Row]:
        """Do the same, and return its rows."""
        with self.in_one_round_trip() as tx:
            return tx.all(statement, **parameters)

    def first(self, statement: str | Composable, **parameters: Any) -> Row | None:
        """Do the same, and return the first row, None if there is none."""
        with self.in_one_round_trip() as tx:
            return tx.first(statement, **parameters)

    def one(self, statement: str | Composable, **parameters: Any) -> Row:
        """Do the same; raise as a transaction does if there is no row."""
        row = self.first(statement, **parameters)
        if row is None:
            raise _lacking(self, statement, parameters)
        return row

    @contextmanager
    def _session(self) -> Iterator[Cursor]:
        try:
            cursor = self._connect().cursor()
            yield cursor
            cursor.close()
        except psycopg2.Error as error:
            self._roll_back()
            raise translate(error).in_database(self.database) from error
        except UnicodeError as error:  # an SQL_ASCII database, or a lone surrogate
            self._roll_back()
            what = f"a text is not UTF-8: {error}"
            raise TextNotStorable(what).in_database(self.database) from error
        except BaseException as error:
            self._roll_back()
            if isinstance(error, ReliabilityError):
                error.in_database(self.database)
            raise

    def reopen_at(self, timeline: int | None) -> None:
        """From now on, open another session when this one has ended between two transactions.

        It must hold nothing from one to the next, such as a lock. A promoted standby or a restored
        server is at another timeline, and may lack what was done here: its loss is told (A1).

        :param timeline: the server's; None, if it does not tell one, changes nothing
        """
        self._timeline = timeline

    @property
    def reopens(self) -> bool:
        return self._timeline is not None

    def server(self) -> tuple[str, int, str]:
        """Return host, port and database of the session; the host of a socket is its folder."""
        with self._session() as cursor:
            info = cursor.connection.info
            return info.host or "", info.port, info.dbname

    def __enter__(self) -> LedgerConnection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        if self._connection is not None and self.reopens and _has_ended(self._connection):
            logger.warning("the session %s has ended: opening another one", self.application_name)
            self.close()
        if self._connection is None or self._connection.closed:
            connection = self._open_patiently()
            if self.reopens:
                self._check_timeline(connection)
            self._connection = connection
        return self._connection

    def _open_patiently(self) -> Connection:
        """Open a session; while there is no place for it, or no server that takes it, try again."""
        until = time.monotonic() + self.opens_within
        while True:
            try:
                connection = self._open()
                will_do = self._reads_only or not self._is_standby
                if will_do or time.monotonic() >= until:
                    return connection
                connection.close()
            except psycopg2.Error as error:
                is_away = isinstance(translate(error), LedgerUnavailable)
                if not is_away or time.monotonic() >= until:
                    raise
            time.sleep(random.uniform(0.2, 2.0))  # not all of a stage's tasks at once

    def _check_timeline(self, connection: Connection) -> None:
        with connection.cursor() as cursor:
            cursor.execute(queries()["server_timeline"])
            [row] = cast(list[Row], cursor.fetchall())
        if row["now"] != self._timeline:
            self._timeline = None
            connection.close()
            raise LedgerUnavailable(
                "the server was restored or has failed over: it may lack what was done before"
            )

    def _open(self) -> Connection:
        connection = self._log_in()
        connection.autocommit = True  # BEGIN and COMMIT are explicit
        read_all_times(connection)
        try:
            self._pins = self._open_session(connection)
        except BaseException:
            connection.close()  # a session without its settings must not be used
            raise
        return connection

    def _log_in(self) -> Connection:
        keywords = self.address.keywords()
        try:
            return _connected(keywords, self.application_name)
        except psycopg2.OperationalError as error:
            if not is_refused(error) or (renewed := self.address.renewed(keywords)) is None:
                raise
        return _connected(renewed, self.application_name)

    def _open_session(self, connection: Connection) -> str:
        """Set up the session; return the statements that every transaction must start with."""
        with connection.cursor() as cursor:
            cursor.execute(queries()["open_session"])
            facts = cast(list[Row], cursor.fetchall())[0]
        self._is_standby = facts["is_standby"]
        pins = ["pin_settings", *([] if facts["waits_for_standbys"] else ["wait_for_disk"])]
        return "; ".join(queries()[name] for name in pins)

    def _check_takes_writes(self) -> None:
        if self._is_standby:
            self.close()  # the next session may be with another server, or after a promotion
            raise LedgerUnavailable("the server is a standby, which takes no writes")

    def _begin(self, name: str) -> str:
        return f"{queries()[name]}; {self._pins}"

    def _roll_back(self) -> None:
        # A failing rollback must not hide the first error; a lost session is rolled back anyway.
        try:
            if self._connection is not None and not self._connection.closed:
                self._connection.cursor().execute(queries()["roll_back"])
        except psycopg2.Error as error:
            logger.warning("ignored an error in a rollback: %s", error)
            self.close()


def _has_ended(connection: Connection) -> bool:
    """Say whether the server has ended an idle session: it has told so, or closed its socket."""
    if connection.closed:
        return True
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    try:
        while waiting.poll(0):  # a last notice, and then the end
            connection.poll()
    except psycopg2.Error:
        return True
    return bool(connection.closed)


def _connected(keywords: Mapping[str, str], application_name: str) -> Connection:
    """Open a session by psycopg2's parameters, some of which are secret."""
    own: dict[str, Any] = {
        # detect a lost peer within a minute, not after TCP's two hours
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        # as Python's strings, whatever PGCLIENTENCODING and the server say
        "client_encoding": "UTF8",
        "application_name": application_name,
        "cursor_factory": RealDictCursor,
    }
    connection: Connection = psycopg2.connect(**{**keywords, **own})
    return connection


Ledger = LedgerConnection | DatabaseTransaction
"""Answers a query: a connection in one round trip, a transaction in its own."""
