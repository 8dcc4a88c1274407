"""The settings of a process, read from its environment; none of them is secret."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path

from reliability.core.definitions import ENGINES, SUBMIT, Topology
from reliability.core.errors import InvalidDefinition


def person() -> str:
    """Return who uses this process, for the ledger: a user and a host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


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
