"""Where a database is, and how each session with it gets its credentials.

The first of these that is there says it, for the ledger and, with its name, for another database:

1. what a driver was given by the task that started it (`DriverAddresses`)
2. `RELIABILITY_DSN`, `RELIABILITY_DSN_<NAME>`: libpq's connection string, without a password
3. the connection of Airflow that a DAG names (`using`)
4. the libpq service `reliability`, or of the database's name, in a service file
5. the connection of Airflow that its configuration names; for the ledger, `reliability_default`

If there is none, libpq is asked for the service all the same, and says that it has none.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from reliability.core.errors import (
    DsnUnreadable,
    LedgerRefusedLogin,
    PasswordInDsn,
    ReliabilityError,
)
from reliability.core.names import check_database, variable_of

logger = logging.getLogger(__name__)
LEDGER = "reliability"
#: names a function, `module:function`, that is asked for the credentials of each session
CREDENTIALS = "RELIABILITY_CREDENTIALS"
#: names, alone or with a database's name behind it, the address with the role of executors
EXECUTOR_DSN = "RELIABILITY_EXECUTOR_DSN"
#: names the file with the addresses that a driver was given
ADDRESSES = "RELIABILITY_ADDRESSES"
#: How often the credentials of a driver are written again, and how long it waits for new ones when
#: a login was refused.
REWRITE_SECONDS = 20.0
RENEWAL_SECONDS = 45.0
#: A file that was not written again for so long belongs to nobody.
ABANDONED_SECONDS = 3600.0
_FILE = "addresses"
_POLL_SECONDS = 0.5
_SECRETS = ("password", "sslpassword")

Keywords = Mapping[str, str]
"""libpq's keywords, such as host and password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """Where a database is, and how a session gets its credentials. It has no secret itself.

    :param dsn: libpq's connection string, without a password
    :param database: the name of a database; empty for the ledger's own
    :param origin: who says where it is, for people
    :param ask: returns what `dsn` does not say, with the password. It is asked for every session;
        if there is none, libpq finds it in its own files and environment
    """

    dsn: str = ""
    database: str = ""
    origin: str = "a connection string"
    ask: Callable[[], Keywords] | None = None

    def keywords(self) -> dict[str, str]:
        """Return psycopg2's parameters for a new session.

        :raises LedgerRefusedLogin: the credentials cannot be had now
        """
        own = dict(self.ask()) if self.ask else {}
        if function := os.environ.get(CREDENTIALS):
            own |= _asked_of(function, self.database, self.public(own))
        return {"dsn": self.dsn, **own}

    def public(self, own: Keywords) -> dict[str, str]:
        """Return all that is known of the address and no secret, as libpq's keywords."""
        from psycopg2.extensions import parse_dsn

        known = {**parse_dsn(self.dsn), **own}
        return {name: value for name, value in known.items() if name not in _SECRETS}

    def renewed(self, refused: Keywords) -> dict[str, str] | None:
        """Return other parameters than those with which a login was refused; None without."""
        if self.ask is None:
            return None
        until = time.monotonic() + (RENEWAL_SECONDS if isinstance(self.ask, KeywordsInFile) else 0)
        while (keywords := self.keywords()) == refused:
            if time.monotonic() >= until:
                return None
            time.sleep(_POLL_SECONDS)
        return keywords


def _asked_of(function: str, database: str, known: Keywords) -> Keywords:
    module, _, name = function.partition(":")
    try:
        keywords: Keywords = dict(getattr(import_module(module), name)(database, known))
    except Exception as error:  # a user's function may raise anything
        what = f"{CREDENTIALS}={function} fails: {type(error).__name__}: {error}"
        raise LedgerRefusedLogin(what) from error
    return keywords


# --- who says it ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnIds:
    """The ids of Airflow's connections for a ledger, and for other databases by their names."""

    ledger: str = ""
    databases: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, ledger: str | None, databases: Mapping[str, str] | None) -> ConnIds:
        return cls(ledger or "", tuple(sorted((databases or {}).items())))

    def for_database(self, database: str) -> str:
        """Return the id for a database; empty if none is named."""
        return dict(self.databases).get(database, "") if database else self.ledger


NOT_NAMED = ConnIds()
_IN_USE: ContextVar[ConnIds] = ContextVar("conn_ids", default=NOT_NAMED)


@contextmanager
def using(conn_ids: ConnIds) -> Iterator[None]:
    """Let `address_of` know, in this thread, which connections of Airflow a DAG names."""
    token = _IN_USE.set(conn_ids)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def address_of(database: str = "") -> DatabaseAddress:
    """Return the address of a user's database; "" is the ledger's own.

    :raises PasswordInDsn: a variable holds a password, which would appear wherever an environment
        or a Spark conf is shown (G10)
    :raises DsnUnreadable: libpq cannot parse it
    :raises InvalidDefinition: the name is not valid
    """
    if database:
        check_database("database", database)
    if (given := _given(database)) is not None:
        return given
    variable = variable_of(database)
    if dsn := os.environ.get(variable):
        return DatabaseAddress(dsn=_checked(dsn, variable), database=database, origin=variable)
    if conn_id := _IN_USE.get().for_database(database):
        return address_at(conn_id, database, "the DAG names it")
    service = database or LEDGER
    if ADDRESSES not in os.environ and not _is_in_a_file(service):
        from reliability.deployment.airflow_connections import configured

        if (connection := configured(database)) is not None:
            conn_id, why = connection
            return address_at(conn_id, database, why)
    return DatabaseAddress(
        dsn=f"service={service}", database=database, origin=f"libpq's service {service}"
    )


def executor_address(database: str = "") -> DatabaseAddress | None:
    """Return the address with the role of Spark's executors; None if they have none of their own.

    `RELIABILITY_EXECUTOR_DSN` says it, or `RELIABILITY_EXECUTOR_DSN_<NAME>`: libpq's connection
    string. Its credentials are found on each executor.

    :raises PasswordInDsn, DsnUnreadable: as for address_of
    """
    variable = variable_of(database).replace(variable_of(""), EXECUTOR_DSN, 1)
    if not (dsn := os.environ.get(variable)):
        return None
    return DatabaseAddress(dsn=_checked(dsn, variable), database=database, origin=variable)


def address_at(conn_id: str, database: str = "", why: str = "as named") -> DatabaseAddress:
    """Return the address to which a connection of Airflow leads.

    :param why: why it is this one, for people
    """
    from reliability.deployment.airflow_connections import AskAirflow

    origin = f"Airflow's connection {conn_id}, {why}"
    return DatabaseAddress(database=database, origin=origin, ask=AskAirflow(conn_id))


def _checked(dsn: str, variable: str) -> str:
    import psycopg2.extensions

    try:
        parts = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # libpq quotes what it cannot parse, which may be part of a password
        raise DsnUnreadable(f"{variable} cannot be read") from None
    if secret := set(_SECRETS) & parts.keys():
        raise PasswordInDsn(f"{variable} holds a {secret.pop()}")
    return dsn


def service_files() -> list[Path]:
    """Return where libpq looks for services, as far as that can be told."""
    home, system = Path.home() / ".pg_service.conf", os.environ.get("PGSYSCONFDIR")
    own = Path(os.environ.get("PGSERVICEFILE") or home)
    return [own, Path(system) / "pg_service.conf"] if system else [own]


def _is_in_a_file(service: str) -> bool:
    section = re.compile(rf"^\s*\[{re.escape(service)}\]", re.MULTILINE)
    for file in service_files():
        try:
            if section.search(file.read_text(errors="replace")):
                return True
        except OSError:
            continue
    return False


# --- what a driver is given ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeywordsInFile:
    """Reads what the task that has started the driver writes, again for each session.

    :param path: of the file, on the driver's host
    """

    path: str
    database: str

    def __call__(self) -> Keywords:
        """Return the keywords.

        :raises LedgerRefusedLogin: the file is not there, or not this user's alone
        """
        if (entry := _entries(self.path).get(self.database)) is None:
            raise LedgerRefusedLogin(f"{self.path} does not have the credentials")
        keywords: Keywords = entry["keywords"]
        return keywords


def _entries(path: str) -> dict[str, dict[str, Any]]:
    """Read a file of addresses; nothing if it is not there, or not this user's alone."""
    try:
        with open(path, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                return {}
            entries: dict[str, dict[str, Any]] = json.load(file)
            return entries
    except OSError:
        return {}


def _given(database: str) -> DatabaseAddress | None:
    path = os.environ.get(ADDRESSES, "")
    if not path or (entry := _entries(path).get(database)) is None:
        return None
    ask = KeywordsInFile(path, database)
    return DatabaseAddress(dsn=entry["dsn"], database=database, origin=entry["origin"], ask=ask)


def _remove_abandoned(folder: Path) -> None:
    """Remove files of this user's that nobody renews: the task was killed, and could not."""
    for path in folder.glob(f"reliability-*/{_FILE}"):
        with suppress(OSError):  # another user's, or gone
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                path.unlink()


class DriverAddresses:
    """What a task gives another process of the addresses that it cannot find itself.

    Secrets are in a file, never in arguments, a Spark conf or an environment (G10).

    :param folder: a folder of this user's alone, which is removed with that process
    :param databases: the names of those that it works with, beside the ledger's own
    """

    def __init__(self, folder: str, databases: Iterable[str] = ()) -> None:
        self._path = Path(folder) / _FILE
        _remove_abandoned(self._path.parent.parent)
        names = {"", *databases, *(name for name, _ in _IN_USE.get().databases)}
        addresses = (address_of(name) for name in sorted(names))
        self._asked = [address for address in addresses if address.ask]
        self._due = 0.0
        self._write()

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables for the process."""
        return {ADDRESSES: str(self._path)}

    def renew(self) -> None:
        """Write the credentials again, unless that was done just now; called regularly."""
        if self._asked and time.monotonic() >= self._due:
            try:
                self._write()
            except (ReliabilityError, OSError) as error:  # what was written may still be right
                logger.warning("a driver gets its credentials later: %s", error)
                with suppress(OSError):
                    self._path.touch()

    def _write(self) -> None:
        self._due = time.monotonic() + REWRITE_SECONDS
        entries = {
            address.database: {
                "dsn": address.dsn,
                "origin": address.origin,
                "keywords": dict(address.ask()) if address.ask else {},
            }
            for address in self._asked
        }
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(entries, file)
        new.replace(self._path)
