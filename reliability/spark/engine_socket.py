"""The socket at which a host's warm engine answers (`warm_engine`).

It lies in a folder that only its user may enter, so whoever connects is this user. A request is a
line; the answer is one JSON object. The connection of `STEP` stays open: when it closes, however
the driver ended, the engine ends what is left of the step.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from importlib.metadata import version
from pathlib import Path
from sys import version_info
from typing import Any

from reliability.core.errors import EngineUnavailable
from reliability.core.names import DISTRIBUTION
from reliability.deployment.settings import engine_folder

SOCKET = "engine.sock"
STEP = "step"  # a session, for as long as the connection is open
STATUS = "status"
STOP = "stop"
ANSWER_SECONDS = 60.0


def socket_path() -> Path:
    return engine_folder() / SOCKET


def connect() -> socket.socket:
    """Return a connection to the engine of this host and user.

    :raises EngineUnavailable: none answers, or others could have put the socket there
    """
    path = socket_path()
    check_private(path.parent)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise EngineUnavailable(f"no engine answers at {path}") from error
    return connection


def ask(connection: socket.socket, request: str) -> dict[str, Any]:
    """Send a request and return the answer.

    :raises EngineUnavailable: it has ended meanwhile, or does not answer
    """
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(f"{request}\n".encode())
        with connection.makefile("rb") as answers:
            line = answers.readline()
        connection.settimeout(None)
        answer: dict[str, Any] = json.loads(line)
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"the engine at {socket_path()} did not answer") from error
    return answer


def engine_status() -> dict[str, Any]:
    """Return pid, application_id, master, steps and versions of the engine; raise as `connect`."""
    with connect() as connection:
        return ask(connection, STATUS)


def check_engine() -> dict[str, Any]:
    """Return the status of the engine; raise EngineUnavailable unless it is of this release."""
    status = engine_status()
    check_versions(status["versions"])
    return status


def versions() -> dict[str, str]:
    """Return what the engine and a step's driver must have in common."""
    return {
        "Python": f"{version_info.major}.{version_info.minor}",
        "Spark": version("pyspark"),
        DISTRIBUTION: version(DISTRIBUTION),
    }


def check_versions(found: dict[str, str]) -> None:
    """Raise EngineUnavailable unless the versions of an engine are this process's."""
    both = {name: (found.get(name), own) for name, own in versions().items()}
    if wrong := [f"{name} {a} instead of {b}" for name, (a, b) in both.items() if a != b]:
        raise EngineUnavailable(f"the engine at {socket_path()} has {'; '.join(wrong)}")


def check_private(folder: Path) -> None:
    """Raise EngineUnavailable unless the folder exists, and nobody else may enter it."""
    try:
        found = folder.lstat()
    except OSError as error:
        raise EngineUnavailable(f"there is no folder {folder}") from error
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or stat.S_IMODE(found.st_mode) & 0o077:
        raise EngineUnavailable(
            f"{folder} is not a folder that only this user may enter",
            remedy=f"remove {folder} or run chmod 700, or set RELIABILITY_ENGINE_FOLDER.",
        )
