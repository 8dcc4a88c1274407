"""The few settings of a process, read from its environment; none of them is a secret."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reliability.core.errors import DsnUnreadable, PasswordInDsn

DEFAULT_DSN = "service=reliability"


def ledger_dsn() -> str:
    """Return RELIABILITY_DSN: how libpq finds the ledger, by default a service of its name.

    A password in it would travel into every place that shows an environment or a Spark conf, so
    it is refused (G10).
    """
    import psycopg2.extensions

    dsn = os.environ.get("RELIABILITY_DSN", DEFAULT_DSN)
    try:
        parts = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # libpq quotes what it cannot read, and that may be a piece of a password
        raise DsnUnreadable from None
    if secret := {"password", "sslpassword"} & parts.keys():
        raise PasswordInDsn(f"RELIABILITY_DSN holds a {secret.pop()}")
    return dsn


def home() -> Path:
    """Return RELIABILITY_HOME, the folder that relative source paths start from."""
    return Path(os.environ.get("RELIABILITY_HOME", ".")).resolve()


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
