"""TCP ports of an environment: chosen once, remembered, chosen again only when taken."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The remembered ports of one environment; `preferred` is tried first for a name."""

    file: Path
    preferred: Mapping[str, int] = field(default_factory=dict)

    def port(self, name: str) -> int:
        """Return the port of `name`, choosing and remembering one the first time."""
        known = self._read()
        return known[name] if name in known else self._choose(name, known)

    def free_port(self, name: str) -> int:
        """Return the port of `name` for a service about to start: another one if it is taken."""
        port = self.port(name)
        return port if is_free(port) else self._choose(name, self._read())

    def _choose(self, name: str, known: Mapping[str, int]) -> int:
        taken = {port for other, port in known.items() if other != name}
        port = first_free(self.preferred.get(name), taken)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_suffix(".draft")
        draft.write_text(json.dumps({**known, name: port}, indent=2))
        draft.replace(self.file)
        return port

    def _read(self) -> dict[str, int]:
        if not self.file.is_file():
            return {}
        return {str(name): int(port) for name, port in json.loads(self.file.read_text()).items()}


def first_free(wanted: int | None, taken: set[int]) -> int:
    if wanted is not None and wanted not in taken and is_free(wanted):
        return wanted
    while (port := _any_port()) in taken:
        pass
    return port


def is_free(port: int) -> bool:
    """Say whether this machine lets us listen on the port, on any address.

    Tried on all addresses: a program on 0.0.0.0 would answer in our place on some systems.
    """
    with socket.socket() as probe:
        # As servers do it, so that a connection just closed does not make the port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
