"""The settings of a process, read from its environment; none of them is secret."""

from __future__ import annotations

import os
from pathlib import Path

from reliability.core.definitions import ENGINES, SUBMIT, Topology
from reliability.core.errors import DsnUnreadable, InvalidDefinition, PasswordInDsn
from reliability.core.names import NAME

DEFAULT_DSN = "service=reliability"


def ledger_dsn() -> str:
    """Return RELIABILITY_DSN: the libpq connection string of the ledger, by default a service.

    :raises PasswordInDsn, DsnUnreadable: as for `database_dsn`
    """
    return _dsn("RELIABILITY_DSN", DEFAULT_DSN)


def database_dsn(name: str) -> str:
    """Return the libpq connection string of a user's database; "" is the ledger's own.

    `shop` is RELIABILITY_DSN_SHOP, by default the libpq service `shop`.

    :raises PasswordInDsn: it holds a password, which would appear wherever an environment or a
        Spark conf is shown (G10)
    :raises DsnUnreadable: libpq cannot parse it
    :raises InvalidDefinition: the name is not valid
    """
    if not name:
        return ledger_dsn()
    if not NAME.fullmatch(name):
        raise InvalidDefinition(
            f"database: {name!r} is not a valid name",
            remedy="use lower case, digits and single underscores; it names a libpq service.",
        )
    return _dsn(f"RELIABILITY_DSN_{name.upper()}", f"service={name}")


def _dsn(variable: str, default: str) -> str:
    import psycopg2.extensions

    dsn = os.environ.get(variable, default)
    try:
        parts = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # libpq quotes what it cannot parse, which may be part of a password
        raise DsnUnreadable(f"{variable} cannot be read") from None
    if secret := {"password", "sslpassword"} & parts.keys():
        raise PasswordInDsn(f"{variable} holds a {secret.pop()}")
    return dsn


def home() -> Path:
    """Return RELIABILITY_HOME, the folder to which relative source paths refer."""
    return Path(named_home() or ".").resolve()


def named_home() -> str | None:
    """Return RELIABILITY_HOME as it is set; if it is not, `home` is the working folder."""
    return os.environ.get("RELIABILITY_HOME")


def engine_of(topology: Topology) -> str:
    """Return what runs a topology's steps: its own choice, RELIABILITY_ENGINE, or `submit`.

    :raises InvalidDefinition: the variable names no engine
    """
    engine = topology.engine or os.environ.get("RELIABILITY_ENGINE") or SUBMIT
    if engine not in ENGINES:
        raise InvalidDefinition(
            f"RELIABILITY_ENGINE is {engine!r}", remedy=f"set it to {' or '.join(ENGINES)}."
        )
    return engine


def engine_folder() -> Path:
    """Return RELIABILITY_ENGINE_FOLDER, where the warm engine of this host and user answers."""
    return Path(os.environ.get("RELIABILITY_ENGINE_FOLDER") or f"/tmp/reliability-{os.getuid()}")


def spark_history(application_id: str) -> str | None:
    """Return where Spark's history server shows an application, by RELIABILITY_SPARK_HISTORY.

    That is the server's address, such as `http://history:18080`; None if it is not set.
    """
    server = os.environ.get("RELIABILITY_SPARK_HISTORY", "").rstrip("/")
    return f"{server}/history/{application_id}/" if server else None
