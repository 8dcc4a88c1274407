"""Connections to the real ledger that fail where a history says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reliability.core.errors import LedgerUnavailable
from reliability.ledger.connection import DatabaseTransaction
from tests.support.pool import PooledConnection


class FaultKind(str, Enum):
    """How a transaction ends that does not end well."""

    CRASH = "before COMMIT the process dies"
    LOST = "after COMMIT its answer is lost"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the nth transaction of an operation, from 0."""

    kind: FaultKind
    at: int


class Crash(BaseException):
    """The process has died: nothing of the product may catch this."""


class Faults:
    """Which fault is still to come in the operation that runs now."""

    def __init__(self) -> None:
        self._armed: Fault | None = None
        self._seen = 0
        self.fired: FaultKind | None = None
        self.is_first_try = True

    @contextmanager
    def armed(self, fault: Fault | None) -> Iterator[None]:
        """Count transactions anew; those of an operation inside another are not the outer one's."""
        before = self._armed, self._seen, self.fired
        self._armed, self._seen, self.fired = fault, 0, None
        try:
            yield
        finally:
            fired = self.fired
            self._armed, self._seen, self.fired = before
            if fault is not None:
                self.fired = fired

    def next(self) -> FaultKind | None:
        """Return what happens to the transaction that begins now."""
        fault, self._seen = self._armed, self._seen + 1
        if fault is None or fault.at != self._seen - 1:
            return None
        self.fired = fault.kind
        return fault.kind


FAULTS = Faults()


class SimulatedConnection(PooledConnection):
    """A connection of the pool whose transactions end as the armed fault says."""

    @contextmanager
    def transaction(
        self, *, reads_only: bool = False, patience: float | None = None
    ) -> Iterator[DatabaseTransaction]:
        """Open a transaction, and let happen to it what is to happen."""
        fault = FAULTS.next()
        with super().transaction(reads_only=reads_only, patience=patience) as tx:
            if fault is FaultKind.CRASH:
                tx.run_and_commit = tx.commit_and_ask = _crash  # type: ignore
            yield tx
            if fault is FaultKind.CRASH:
                raise Crash
        if fault is FaultKind.LOST:
            raise LedgerUnavailable("server closed the connection unexpectedly")

    @contextmanager
    def in_one_round_trip(self) -> Iterator[DatabaseTransaction]:
        """Do the same with a transaction of one round trip, which commits as it is sent."""
        fault = FAULTS.next()
        with super().in_one_round_trip() as tx:
            if fault is FaultKind.CRASH:
                tx.send_queued = _crash  # type: ignore[method-assign]
            yield tx
        if fault is FaultKind.LOST:
            raise LedgerUnavailable("server closed the connection unexpectedly")


def _crash(*_: object, **__: object) -> Any:
    raise Crash
