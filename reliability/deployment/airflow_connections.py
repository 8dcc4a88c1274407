"""Airflow's connections to Postgres, found by its secrets backends in whatever process this is."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import get_ident
from typing import Any

from reliability.core.errors import (
    DatabaseConnectionMissing,
    DsnUnreadable,
    InvalidDefinition,
    LedgerRefusedLogin,
)

DEFAULT = "reliability_default"
SECTION = "reliability"
PARALLELISM = 32  # of Airflow, by default
TYPES = ("reliability", "postgres", "postgresql")
_LOOP_SECONDS = 60.0

_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("loop", default=None)


@contextmanager
def asking_by(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """Let this thread of a triggerer ask Airflow by the triggerer's event loop.

    Before 3.2, a triggerer answers nothing that is asked in another way by a thread of ours.
    """
    token = _LOOP.set(loop)
    try:
        yield
    finally:
        _LOOP.reset(token)


class _Answers:
    """What Airflow has last told, by the ids of connections, and which thread asks it.

    :ivar asker: the only one that does, in a task; None elsewhere
    """

    def __init__(self) -> None:
        self.asker: int | None = None
        self.last: dict[str, Mapping[str, str]] = {}


_answers = _Answers()


@contextmanager
def asking_alone() -> Iterator[None]:
    """Let the other threads of a task have what this one was last told.

    Before 3.2, two threads of a task that ask Airflow at once get each other's answers.
    """
    before, _answers.asker = _answers.asker, get_ident()
    try:
        yield
    finally:
        _answers.asker = before


@dataclass(frozen=True, slots=True)
class AskAirflow:
    """Asks Airflow for a connection, for each session."""

    conn_id: str

    def __call__(self) -> Mapping[str, str]:
        """Return it as libpq's keywords.

        :raises DatabaseConnectionMissing: Airflow does not have it, or cannot be asked
        :raises DsnUnreadable: it is of another type
        """
        if _answers.asker not in (None, get_ident()) and self.conn_id in _answers.last:
            return _answers.last[self.conn_id]
        _answers.last[self.conn_id] = keywords_of(self.conn_id, _read(self.conn_id))
        return _answers.last[self.conn_id]


def keywords_of(conn_id: str, connection: Any) -> dict[str, str]:
    """Return a connection of Airflow as libpq's keywords.

    Its extras are libpq's parameters, such as sslmode; others, which hooks of Airflow know, are
    left out. With the extra `iam`, Airflow's PostgresHook makes a token.

    :raises DsnUnreadable: it is of another type
    """
    if connection.conn_type not in TYPES:
        raise DsnUnreadable(
            f"Airflow's connection {conn_id} is of type {connection.conn_type}",
            remedy=f"give it the type {TYPES[0]} or {TYPES[1]}.",
        )
    extras = connection.extra_dejson
    login, password, port = connection.login, connection.password, connection.port
    if extras.get("iam"):
        login, password, port = _token(conn_id, connection)
    fields = {
        "host": connection.host,
        "port": port,
        "dbname": connection.schema,
        "user": login,
        "password": password,
    }
    known = [(name, value) for name, value in extras.items() if _is_of_libpq(name)]
    given = [*known, *fields.items()]  # of one name, the last that is not empty
    return {name: str(value) for name, value in given if value not in (None, "")}


def _token(conn_id: str, connection: Any) -> tuple[str, str, int]:
    try:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        return PostgresHook(postgres_conn_id=conn_id).get_iam_token(connection)
    except Exception as error:  # of the cloud's client
        what = f"Airflow's connection {conn_id} gets no token: {type(error).__name__}: {error}"
        raise LedgerRefusedLogin(what) from error


def _is_of_libpq(name: str) -> bool:
    import psycopg2
    from psycopg2.extensions import make_dsn

    try:
        make_dsn(**{name: "x"})
    except psycopg2.ProgrammingError:
        return False
    return True


def _read(conn_id: str) -> Any:
    try:
        return find_connection(conn_id)
    except Exception as error:  # a secrets backend may raise anything, with a secret in its text
        raise DatabaseConnectionMissing(
            f"Airflow has no connection {conn_id}, or cannot be asked: {type(error).__name__}"
        ) from None


def find_connection(conn_id: str) -> Any:
    """Return a connection of Airflow; raise whatever Airflow raises, or a secrets backend."""
    try:
        from airflow.sdk.bases.hook import BaseHook
    except ImportError:  # Airflow 3.0
        from airflow.hooks.base import BaseHook  # type: ignore[attr-defined, no-redef]
    loop = _LOOP.get()
    if loop is not None and not loop.is_closed() and hasattr(BaseHook, "aget_connection"):
        asked = asyncio.run_coroutine_threadsafe(BaseHook.aget_connection(conn_id), loop)
        return asked.result(_LOOP_SECONDS)
    try:
        return BaseHook.get_connection(conn_id)
    except Exception:
        # A process that is no part of Airflow, such as the command line, may reach its database.
        from airflow.models.connection import Connection

        return Connection.get_connection_from_secrets(conn_id)


# --- which one -----------------------------------------------------------------------------------


def configured(database: str) -> tuple[str, str] | None:
    """Return the id of a database's connection by Airflow's configuration, and why that one.

    :raises InvalidDefinition: the configuration cannot be read
    """
    if (conn_id := named_conn_id(database)) or not is_set_up():
        option = "database_conn_ids" if database else "ledger_conn_id"
        return (conn_id, f"[{SECTION}] {option} names it") if conn_id else None
    return (DEFAULT, "the default") if not database and _exists(DEFAULT) else None


def is_set_up() -> bool:
    """Say whether this process can ask Airflow; asked in vain, it would set up one here."""
    if "airflow" in sys.modules:
        return True
    config = Path.home() / "airflow" / "airflow.cfg"
    is_meant = any(name.startswith("AIRFLOW") for name in os.environ) or config.is_file()
    return is_meant and find_spec("airflow") is not None


def has_database() -> bool:
    """Say whether Airflow's database is known here: a worker need not know it."""
    from airflow.configuration import conf

    _, is_sqlite, path = conf.get("database", "sql_alchemy_conn").partition("sqlite:///")
    return not is_sqlite or Path(path).is_file()


def parallelism() -> int:
    """Return how many tasks a scheduler runs at once, by default as by Airflow's own."""
    if not is_set_up():
        return PARALLELISM
    from airflow.configuration import conf

    return int(conf.getint("core", "parallelism"))


def named_conn_id(database: str) -> str:
    """Return the id that Airflow's configuration names for a database; empty if it names none."""
    if not is_set_up():
        return ""
    return configured_databases().get(database, "") if database else _option("ledger_conn_id")


def configured_databases() -> Mapping[str, str]:
    """Return the ids of connections by names of databases, by Airflow's configuration."""
    text = _option("database_conn_ids") or "{}"
    try:
        ids = json.loads(text)
        if isinstance(ids, dict) and all(isinstance(conn_id, str) for conn_id in ids.values()):
            return ids
    except ValueError:
        pass
    raise InvalidDefinition(
        f"[{SECTION}] database_conn_ids in Airflow's configuration is {text[:100]!r}",
        remedy='write the ids of connections by names of databases: {"mart": "mart_postgres"}.',
    )


@cache
def _option(name: str) -> str:
    from airflow.configuration import conf

    return conf.get(SECTION, name, fallback="") or ""


def _exists(conn_id: str) -> bool:
    try:
        find_connection(conn_id)
    except Exception:
        return False
    return True
