"""The warm engine of an environment: a Spark application in which the steps of its DAGs run."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dev.errors import DevError
from dev.services.processes import Background, stop_all, wait_until
from reliability.core.definitions import ENGINES
from reliability.spark.engine_socket import SOCKET

START_SECONDS = 120
STOP_SECONDS = 10


def engine_asked_for() -> str:
    """Return the engine that ENGINE names; empty if it names none.

    :raises DevError: there is no such engine
    """
    engine = os.environ.get("ENGINE", "")
    if engine not in ("", *ENGINES):
        raise DevError(f"ENGINE is submit or warm, not {engine!r}")
    return engine


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEngine:
    """One engine, known by its record like Airflow's components."""

    root: Path
    state_dir: Path

    @property
    def folder(self) -> Path:
        """Where it answers; only this user may enter."""
        return self.state_dir / "engine"

    def start(self, env: Mapping[str, str]) -> None:
        """Start it unless it runs, and return when it answers."""
        command = [str(self.root / ".venv" / "bin" / "reliability"), "engine", "run"]
        self._background.start([*command, "--master", "local[2]"], env, self.root, depends_on={})
        wait_until(lambda: self._answers() or not self.is_alive(), "the engine", START_SECONDS)
        if not self.is_alive():
            log = self._background
            raise DevError(f"the engine ended; the end of {log.log}:\n{log.tail()}")

    def stop(self) -> None:
        stop_all([self._background], STOP_SECONDS)

    def is_alive(self) -> bool:
        return self._background.is_alive()

    @property
    def pid(self) -> int:
        """Its JVM's; 0 if it does not run."""
        process = self._background.find()
        return process.pid if process else 0

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.connect(str(self.folder / SOCKET))
            return True
        return False

    @property
    def _background(self) -> Background:
        return Background(name="engine", state_dir=self.state_dir)
