"""The warm engine of an environment: a Spark application in which the steps of its DAGs run."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dev.errors import DevError
from dev.services.processes import Background, wait_until
from reliability.core.definitions import ENGINES
from reliability.spark.engine_socket import SOCKET

START_SECONDS = 120


def engine_asked_for() -> str:
    """Return the engine that ENGINE names; empty if it names none.

    :raises DevError: there is no such engine
    """
    engine = os.environ.get("ENGINE", "")
    if engine not in ("", *ENGINES):
        raise DevError(f"ENGINE is submit or warm, not {engine!r}")
    return engine


@dataclass(kw_only=True)
class WarmEngine(Background):
    """One engine, known by its record like Airflow's components."""

    name: str = "engine"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.folder = self.state_dir / "engine"  # where it answers; only this user may enter

    def run(self, root: Path, env: Mapping[str, str]) -> None:
        """Start it unless it runs, and return when it answers."""
        command = [str(root / ".venv" / "bin" / "reliability"), "engine", "run"]
        self.start([*command, "--master", "local[2]"], env, root, depends_on={})
        wait_until(lambda: self._answers() or not self.is_alive(), "the engine", START_SECONDS)
        if not self.is_alive():
            raise DevError(f"the engine ended; the end of {self.log}:\n{self.tail()}")

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.connect(str(self.folder / SOCKET))
            return True
        return False
