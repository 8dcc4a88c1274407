"""Let a process die before any one of its round trips: in itself, or by SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest
from psycopg2.extras import RealDictCursor

import reliability.ledger.connection

# What is durable changes at the borders of transactions; THOROUGH=1 lets a process die before
# every single round trip.
EVERY = 1 if os.environ.get("THOROUGH") else 4
#: How a transaction in one round trip begins; it has no COMMIT.
AT_ONCE = "SET TRANSACTION"


class Died(BaseException):
    """The process is gone: nothing of it handles this, and nothing is sent any more."""


class Fate:
    """Counts the round trips of every session, and ends it all before one of them.

    :param at: before round trip number `at`, counted from 0
    :param after: in the pause after the transaction in which a statement has this text
    :param unanswered: do not die, but lose the answer to commit number `unanswered`
    """

    def __init__(
        self,
        at: int | None = None,
        *,
        after: str | None = None,
        unanswered: int | None = None,
        sigkill: bool = False,
    ) -> None:
        self.at = at
        self.after = after
        self.unanswered = unanswered
        self.sigkill = sigkill
        self.round_trips = 0
        self.commits = 0
        self.statements: list[str] = []
        self.connections: dict[int, Any] = {}
        self.has_died = False

    def is_due(self, text: str) -> bool:
        """Say whether this is the round trip that is not made any more."""
        if self.after is not None and text.startswith(("BEGIN", AT_ONCE)):
            return any(self.after in statement for statement in self.statements)
        return self.at is not None and self.round_trips >= self.at

    def meet(self, cursor: Any, query: Any, values: Any) -> bool:
        """Note the statements that go together, or die before them; say if the answer is lost."""
        self.connections[id(cursor.connection)] = cursor.connection
        sent = statements_of(cursor.mogrify(query, values).decode())
        if self.has_died or self.is_due(sent[0]):
            self.has_died = True
            if self.sigkill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Died
        self.round_trips += 1
        self.statements += sent
        if "COMMIT" not in sent and not sent[0].startswith(AT_ONCE):
            return False
        self.commits += 1
        return self.commits - 1 == self.unanswered

    def cursor(self) -> type[RealDictCursor]:
        """Return the cursor for every session from now on."""
        fate = self

        class DoomedCursor(RealDictCursor):
            def execute(self, query: Any, vars: Any = None) -> None:
                is_lost = fate.meet(self, query, vars)
                super().execute(query, vars)
                if is_lost:
                    self.connection.close()
                    raise psycopg2.OperationalError("server closed the connection unexpectedly")

        return DoomedCursor


def statements_of(text: str) -> list[str]:
    """Return the statements of one round trip, each of which ends a line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    sent = [" ".join(one.split()) for one in "\n".join(lines).split(";\n")]
    # as the driver quotes, where the server may need it
    return [one.replace(" E'", " '") for one in sent]


@contextmanager
def doomed(at: int | None = None, **fate_of: Any) -> Iterator[Fate]:
    """Sessions opened inside the block die together, as Fate says.

    As after a SIGKILL their ends are just gone: what they had open rolls back.
    """
    fate = Fate(at, **fate_of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reliability.ledger.connection, "RealDictCursor", fate.cursor())
        try:
            yield fate
        except Died:
            for connection in fate.connections.values():
                connection.close()
