"""TurnTrigger: wait for a txid's turn without holding a worker slot, and sweep meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from reliability.ledger.door import Door

LOOK_EVERY_SECONDS = 0.5
RENEW_EVERY_LOOKS = 20
ASK_SOURCE_EVERY_SECONDS = 30


class TurnTrigger(BaseTrigger):
    """Fire when the task has something to do; the event is a hint, the task asks the ledger."""

    def __init__(
        self,
        topology: str,
        txid: int,
        request_id: int,
        work: dict[str, Any],
        ask_source: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topology = topology
        self.txid = txid
        self.request_id = request_id
        self.work = work
        self.ask_source = ask_source

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how to make this trigger again: ids only, never a DSN."""
        return (
            "reliability_airflow.triggers.TurnTrigger",
            {
                "topology": self.topology,
                "txid": self.txid,
                "request_id": self.request_id,
                "work": self.work,
                "ask_source": self.ask_source,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every half second; show now and then that the run is alive, and sweep."""
        looks = 0
        if self.ask_source:  # the spout is the task's to ask: this process has no pipeline code
            await asyncio.sleep(ASK_SOURCE_EVERY_SECONDS)
        while True:
            sweeps = looks % RENEW_EVERY_LOOKS == 0
            if await asyncio.to_thread(self._look, sweeps=sweeps):
                yield TriggerEvent({"txid": self.txid})  # type: ignore[no-untyped-call]
                return
            looks += 1
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    def _look(self, *, sweeps: bool) -> bool:
        """Say whether the task has something to do; while the ledger is away, it has not."""
        from reliability.core.coordinator import Wait, Work, next_action
        from reliability.core.errors import Terminal, Transient
        from reliability.transaction.begin import read_snapshot

        try:
            if sweeps:
                self._sweep()
            with looking.session() as door:
                snapshot, request = read_snapshot(door, self.topology, self.txid, self.request_id)
        except Transient as error:
            self.log.warning("txid %s: %s", self.txid, error)
            return False
        except Terminal:
            return True  # the task meets the error, and says it where it is looked for
        return not isinstance(next_action(snapshot, request, Work.from_json(self.work)), Wait)

    def _sweep(self) -> None:
        from reliability.settings import Leases
        from reliability.transaction.request import renew
        from reliability.transaction.sweep import sweep

        with sweeping.session() as door:
            renew(door, self.request_id)
            sweep(door, self.topology, Leases())


class SharedSession:
    """One session with the ledger for all triggers of a process, used by one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._door: Door | None = None

    @contextmanager
    def session(self) -> Iterator[Door]:
        """Wait for the session; whatever goes wrong inside, the next one gets it."""
        from reliability.ledger.door import Door
        from reliability.settings import ledger_dsn

        with self._lock:
            if self._door is None:
                self._door = Door(ledger_dsn(), application_name="reliability triggers")
            yield self._door


# A sweep may wait for a lock; nobody who only looks should wait with it.
looking = SharedSession()
sweeping = SharedSession()
