"""TCP ports of an environment: chosen once, remembered, chosen again only when taken."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dev.services.files import write_private

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The remembered ports of one environment; `preferred` is tried first for a name."""

    file: Path
    preferred: Mapping[str, int] = field(default_factory=dict)

    def port(self, name: str) -> int:
        """Return the port of `name`, choosing and remembering one the first time."""
        return self._known().get(name) or self.free_port(name)

    def free_port(self, name: str) -> int:
        """Return the port of `name` for a service about to start: another one if it is taken."""
        known = self._known()
        port = known.pop(name, self.preferred.get(name, 0))
        while port in {0, *known.values()} or not is_free(port):
            with socket.socket() as probe:
                probe.bind((HOST, 0))
                port = int(probe.getsockname()[1])
        write_private(self.file, json.dumps({**known, name: port}, indent=2))
        return port

    def _known(self) -> dict[str, int]:
        return json.loads(self.file.read_text()) if self.file.is_file() else {}


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
