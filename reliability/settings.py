"""The few settings of a process, read from its environment; none of them is a secret."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from reliability.core.errors import DsnUnreadable, InvalidDefinition, PasswordInDsn

DEFAULT_DSN = "service=reliability"
_DATABASE_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def ledger_dsn() -> str:
    """Return RELIABILITY_DSN: how libpq finds the ledger, by default a service of its name.

    :raises PasswordInDsn, DsnUnreadable: as for `database_dsn`
    """
    return _dsn("RELIABILITY_DSN", DEFAULT_DSN)


def database_dsn(name: str) -> str:
    """Return how libpq finds a database of the user's: the ledger's own for the name "".

    `shop` is RELIABILITY_DSN_SHOP, by default the libpq service `shop`.

    :raises PasswordInDsn: a password in it would travel into every place that shows an
        environment or a Spark conf (G10)
    :raises DsnUnreadable: it is not what libpq takes
    :raises InvalidDefinition: the name is no name
    """
    if not name:
        return ledger_dsn()
    if not _DATABASE_NAME.fullmatch(name):
        raise InvalidDefinition(
            f"database: {name!r} is not a name",
            remedy="use lower case, digits and single underscores; it names a libpq service.",
        )
    return _dsn(f"RELIABILITY_DSN_{name.upper()}", f"service={name}")


def _dsn(variable: str, default: str) -> str:
    import psycopg2.extensions

    dsn = os.environ.get(variable, default)
    try:
        parts = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # libpq quotes what it cannot read, and that may be a piece of a password
        raise DsnUnreadable(f"{variable} cannot be read") from None
    if secret := {"password", "sslpassword"} & parts.keys():
        raise PasswordInDsn(f"{variable} holds a {secret.pop()}")
    return dsn


def home() -> Path:
    """Return RELIABILITY_HOME, the folder that relative source paths start from."""
    return Path(named_home() or ".").resolve()


def named_home() -> str | None:
    """Return RELIABILITY_HOME as it is written; without it, `home` is the working folder."""
    return os.environ.get("RELIABILITY_HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """How long silence is borne, in seconds; a topology says so itself for its running attempts.

    :param submit: from the grant of an attempt to the driver's first message: spark-submit, and
        the cluster's queue
    :param request: between two signs of life of a run that asked for a txid
    :param overdue: how long after it was processed a txid is left to its own task; then anybody
        who passes commits it when its turn has come
    """

    submit: int = 1800
    request: int = 600
    overdue: int = 10


DEFAULT_LEASES = Leases()
