"""A server between processes and Postgres, which knows what they are about to do.

The product has no code for faults: all that it keeps is in Postgres, so the places where a death
makes a difference are before and after each of its changes there. Here each of them has a name,
that of the last statement in sql/ that may write; see `Change`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from reliability.ledger.queries import queries
from reliability.testing.faults import may_write

_PLACE = re.compile(r"%\(|%%")
_WRITES = re.compile(r"^(INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)\b", re.MULTILINE)
_COMMIT = "commit"
_COPY = "COPY "
_SETTINGS = frozenset(
    (
        *("begin", "begin_reading", "begin_at_once", "pin_settings", "wait_for_disk"),
        *("open_session", "commit", "roll_back", "set_lock_timeout", "isolate_source"),
    )
)
_REFUSAL = (
    "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100',"
    " MESSAGE = 'could not extend file: No space left on device'; END $$"
)
_STARTUP_CODES = frozenset((80877103, 80877104))  # SSLRequest, GSSENCRequest: one byte answers


class FaultKind(str, Enum):
    """What happens at a change of the ledger."""

    REFUSED = "the disk is full"
    CUT = "the connection ends before"
    LOST = "the connection ends after"
    KILLED = "SIGKILL before"
    KILLED_AFTER = "SIGKILL after"
    FROZEN = "SIGSTOP before, the work is done by another, SIGCONT"
    TWICE = "another begins the same before"
    CRASHED = "SIGKILL of Postgres after"


KILLS = (FaultKind.KILLED, FaultKind.KILLED_AFTER)
WITH_ANOTHER = (FaultKind.FROZEN, FaultKind.TWICE)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the ledger, or of target tables, that a process makes.

    :param statement: the last named statement that may write; "COPY" for rows that are staged
    :param occurrence: which one of this name it is, from 1
    """

    statement: str
    occurrence: int

    def __str__(self) -> str:
        return self.statement + (f" ({self.occurrence})" if self.occurrence > 1 else "")


@dataclass(slots=True)
class Armed:
    """What is to happen at which change, and whether it has.

    :ivar thaw: set when a statement that is held back may go on
    """

    kind: FaultKind
    change: Change
    fired: threading.Event = field(default_factory=threading.Event)
    thaw: threading.Event = field(default_factory=threading.Event)
    pid: int = 0


@dataclass(slots=True)
class _Transaction:
    last: str = "a statement"
    writes: bool = False


class Proxy:
    """Passes all on between the clients of a Unix socket and Postgres.

    :param crash: kills Postgres and starts it again
    :ivar changes: what was changed so far, in order
    """

    def __init__(self, folder: Path, port: int, crash: Callable[[], None]) -> None:
        self.folder, self._port, self.crash = folder, port, crash
        self.changes: list[Change] = []
        self.armed: Armed | None = None
        self._counted: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{port}"))
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def dsn(self, database: str) -> str:
        """Return how a process gets to a database through here."""
        return (
            f"service=reliability dbname={database} host={self.folder} port={self._port}"
            " sslmode=disable"
        )

    def begin(self, armed: Armed | None = None) -> None:
        """Forget what was counted; let a fault happen."""
        with self._lock:
            self.changes, self._counted, self.armed = [], Counter(), armed

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            client.close()
            return
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, server, suppress(OSError, EOFError):
            _Session(self, client, server).serve()

    # --- what a session tells --------------------------------------------------------------------

    def meet(self, statement: str) -> Armed | None:
        """Count a change; return what is to happen at it."""
        with self._lock:
            self._counted[statement] += 1
            change = Change(statement, self._counted[statement])
            self.changes.append(change)
            armed = self.armed
            if armed is None or armed.fired.is_set() or armed.change != change:
                return None
            return armed


class _Session:
    """One client's session."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._transaction = _Transaction()
        self._swallows = threading.Event()
        self._is_swallowed = threading.Event()

    def serve(self) -> None:
        self._start()
        threading.Thread(target=self._pass_back, daemon=True).start()
        try:
            while True:
                kind, body = self._read_message()
                if kind == b"Q":
                    self._ask(body.rstrip(b"\0").decode("utf-8", "replace"), body)
                else:
                    self._send(kind, body)
        finally:
            _end(self._client, self._server)

    def _start(self) -> None:
        while True:
            [length] = struct.unpack("!I", _exactly(self._client, 4))
            body = _exactly(self._client, length - 4)
            self._server.sendall(struct.pack("!I", length) + body)
            if struct.unpack("!I", body[:4])[0] not in _STARTUP_CODES:
                return
            self._client.sendall(_exactly(self._server, 1))

    def _pass_back(self) -> None:
        with suppress(OSError, EOFError):
            while data := self._server.recv(1 << 16):
                if not self._swallows.is_set():
                    self._client.sendall(data)
                elif _is_complete(data, self._server):
                    self._is_swallowed.set()
                    return  # the client must not see an end before it is killed
        self._is_swallowed.set()
        _end(self._client, self._server)

    def _read_message(self) -> tuple[bytes, bytes]:
        head = _exactly(self._client, 5)
        [length] = struct.unpack("!I", head[1:])
        return head[:1], _exactly(self._client, length - 4)

    def _send(self, kind: bytes, body: bytes) -> None:
        self._server.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    # --- changes ---------------------------------------------------------------------------------

    def _ask(self, text: str, body: bytes) -> None:
        """Pass a round trip on, unless it is the one at which something happens."""
        change = self._change_of(text)
        armed = self._proxy.meet(change) if change else None
        if armed is None:
            self._send(b"Q", body)
            return
        armed.pid = _peer(self._client)
        match armed.kind:
            case FaultKind.REFUSED:
                armed.fired.set()
                self._send(b"Q", _REFUSAL.encode() + b"\0")
            case FaultKind.CUT:
                armed.fired.set()
                raise EOFError
            case FaultKind.KILLED:
                os.kill(armed.pid, signal.SIGKILL)
                armed.fired.set()
                raise EOFError
            case FaultKind.FROZEN | FaultKind.TWICE:
                if armed.kind is FaultKind.FROZEN:
                    os.kill(armed.pid, signal.SIGSTOP)
                armed.fired.set()
                armed.thaw.wait()
                self._send(b"Q", body)
                if armed.kind is FaultKind.FROZEN:
                    os.kill(armed.pid, signal.SIGCONT)
            case FaultKind.LOST | FaultKind.KILLED_AFTER | FaultKind.CRASHED:
                self._act_and_lose(armed, body)

    def _act_and_lose(self, armed: Armed, body: bytes) -> None:
        """Let the server act, and the client not know."""
        self._swallows.set()
        self._send(b"Q", body)
        self._is_swallowed.wait()
        if armed.kind is FaultKind.KILLED_AFTER:
            os.kill(armed.pid, signal.SIGKILL)
        elif armed.kind is FaultKind.CRASHED:
            self._proxy.crash()
        armed.fired.set()
        raise EOFError

    def _change_of(self, text: str) -> str:
        """Return the name of the change that this round trip makes lasting, if it makes one."""
        seen = self._transaction
        if text.startswith(_COPY):
            return "COPY"
        named = named_statements(text)
        is_at_once = named[:1] == ["begin_at_once"]
        if is_at_once or named[:1] in (["begin"], ["begin_reading"]):
            seen = self._transaction = _Transaction()
        ends = is_at_once
        seen.writes = seen.writes or _WRITES.search(text) is not None
        for name in named:
            if name == _COMMIT:
                ends = True
                break  # what is asked behind it is no change
            if name in _SETTINGS:
                continue
            if may_write(queries()[name].encode()):
                seen.writes, seen.last = True, name
        if not (ends and seen.writes):
            return ""
        seen.writes = False
        return seen.last


def named_statements(text: str) -> list[str]:
    """Return the names of a round trip's statements, in order.

    No two begin with the same text up to their first parameter.
    """
    found: dict[int, str] = {}
    for beginning, name in statement_beginnings():
        place = text.find(beginning)
        while place >= 0:
            if place == 0 or text[place - 1] == "\n" or text[place - 2 : place] == "; ":
                found[place] = name
            place = text.find(beginning, place + len(beginning))
    return [found[place] for place in sorted(found)]


@cache
def statement_beginnings() -> list[tuple[str, str]]:
    return [(_PLACE.split(text, maxsplit=1)[0], name) for name, text in queries().items()]


def _is_complete(data: bytes, server: socket.socket) -> bool:
    """Read an answer that begins with this data to its end, where the server waits again."""
    place = 0
    while True:
        while len(data) < place + 5:
            data += server.recv(1 << 16) or _raise_end()
        kind = data[place : place + 1]
        [length] = struct.unpack("!I", data[place + 1 : place + 5])
        if kind == b"Z" or kind == b"G":  # ReadyForQuery, CopyInResponse
            return True
        place += 1 + length


def _raise_end() -> Any:
    raise EOFError


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += source.recv(count - len(data)) or _raise_end()
    return data


def _peer(client: socket.socket) -> int:
    """Return the process at the other end."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("iII", credentials)[0]
    return pid


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
