"""Faults of a pipeline's processes, wherever a clean run changes the ledger.

A change of the ledger is a round trip that ends with COMMIT. A process may die before it, or its
answer may be lost after it: the process knows no more than that its session has ended. What happens
in Spark's tasks is not among these faults; a driver that dies before or after them is.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from reliability.core.errors import LedgerUnavailable
from reliability.ledger.connection import DatabaseTransaction

_READS = re.compile(rb"(\s|--[^\n]*\n)*SELECT\b", re.IGNORECASE)
_MAY_WRITE = re.compile(rb"\breliability\.\w+\s*\(", re.IGNORECASE)  # a function of the ledger's
_COMMIT = "commit"


class FaultKind(str, Enum):
    """What happens at a change of the ledger."""

    DIES = "the process dies before"
    LOST = "the answer is lost after"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens where.

    :param statement: the last statement that may write, by its name in sql/queries
    :param occurrence: which change of this name it is, from 1
    """

    kind: FaultKind
    statement: str
    occurrence: int

    def __str__(self) -> str:
        again = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.kind.value} {self.statement}{again}"


class Death(BaseException):
    """The process has died: nothing of the product may catch this."""


def may_write(statement: bytes) -> bool:
    """Say whether a statement of a transaction is more than a query."""
    return not _READS.match(statement) or _MAY_WRITE.search(statement) is not None


@dataclass(slots=True)
class _Seen:
    """The statements of a transaction so far: whether any may write, and the last that may."""

    last: str = "a statement"
    writes: bool = False
    has_ended: bool = False

    def see(self, statement: object, text: bytes) -> None:
        if statement == _COMMIT:
            self.has_ended = True
        if self.has_ended or not may_write(text):
            return
        self.writes = True
        if isinstance(statement, str):
            self.last = statement


def _seen_in(tx: DatabaseTransaction) -> _Seen:
    seen: _Seen = vars(tx).setdefault("_seen", _Seen())
    return seen


@dataclass
class Faults:
    """Counts the changes of the ledger that this thread makes, and lets one of them fail.

    :param fault: None for a clean run
    :ivar changes: the last statement of each change that was made
    :ivar has_fired: the fault has happened
    """

    fault: Fault | None = None
    changes: list[str] = field(default_factory=list)
    has_fired: bool = False
    _counted: Counter[str] = field(default_factory=Counter)
    _thread: int = field(default_factory=threading.get_ident)

    def possible(self) -> list[Fault]:
        """Return the faults that a run which makes the same changes may have."""
        counted: Counter[str] = Counter()
        found = []
        for statement in self.changes:
            counted[statement] += 1
            found += [Fault(kind, statement, counted[statement]) for kind in FaultKind]
        return found

    @contextmanager
    def armed(self) -> Iterator[Faults]:
        """Look at each change in this block."""
        text_of, send = DatabaseTransaction._text, DatabaseTransaction.send_queued

        def _text(tx: DatabaseTransaction, statement: Any, parameters: Any) -> bytes:
            text = text_of(tx, statement, parameters)
            _seen_in(tx).see(statement, text)
            return text

        def send_queued(tx: DatabaseTransaction) -> None:
            seen = _seen_in(tx)
            ends = bool(tx._queued) and (tx._is_at_once or seen.has_ended)
            if not (ends and seen.writes) or threading.get_ident() != self._thread:
                send(tx)
                return
            fires = self._fires(seen.last)
            if fires is FaultKind.DIES:
                raise Death(str(self.fault))
            send(tx)
            seen.writes = False  # what is asked behind COMMIT is no change
            if fires is FaultKind.LOST:
                raise LedgerUnavailable(f"{self.fault}: the session has ended")

        vars_of: Any = DatabaseTransaction
        vars_of._text, vars_of.send_queued = _text, send_queued
        try:
            yield self
        finally:
            vars_of._text, vars_of.send_queued = text_of, send

    def _fires(self, statement: str) -> FaultKind | None:
        self.changes.append(statement)
        self._counted[statement] += 1
        fault = self.fault
        if self.has_fired or fault is None:
            return None
        if (fault.statement, fault.occurrence) != (statement, self._counted[statement]):
            return None
        self.has_fired = True
        return fault.kind
