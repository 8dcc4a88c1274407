"""Triggers: wait for a txid's turn, or for the ledger, without holding a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from reliability.core.coordinator import Blocked

SOURCE_POLL_SECONDS = 30
BLOCKED_POLL_SECONDS = 15
LEDGER_POLL_SECONDS = 10


class TurnTrigger(BaseTrigger):
    """Fire when the task has something to do; the event is a hint, the task reads the ledger."""

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
        """Return how to create this trigger again: ids only, never a DSN."""
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
        """Wait in the poller of this process: see `poller.py`."""
        from reliability.core.coordinator import Work
        from reliability_airflow.poller import poller

        if self.ask_source:  # only the task can ask the spout: this process has no pipeline code
            await asyncio.sleep(SOURCE_POLL_SECONDS)
        turn = asyncio.ensure_future(
            poller.wait(
                topology=self.topology,
                txid=self.txid,
                request_id=self.request_id,
                work=Work.from_json(self.work),
            )
        )
        try:
            blocked = None
            while not turn.done():
                await asyncio.wait([turn], timeout=BLOCKED_POLL_SECONDS)
                blocked = self._log_change(blocked, poller.blocked(self.topology, self.txid))
            await turn
        finally:
            turn.cancel()
        yield TriggerEvent({"txid": self.txid})  # type: ignore[no-untyped-call]

    def _log_change(self, before: Blocked | None, now: Blocked | None) -> Blocked | None:
        """Say in the task's log when the txid is blocked, and when it is no longer."""
        if now is not None and now != before:
            self.log.warning("txid %s waits: %s", self.txid, now.advice(self.topology))
        elif now is None and before is not None:
            self.log.info("txid %s is no longer blocked by txid %s", self.txid, before.txid)
        return now


class LedgerTrigger(BaseTrigger):
    """Fire when the ledger answers again, but not before a few seconds have passed."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how to create this trigger again."""
        return ("reliability_airflow.triggers.LedgerTrigger", {})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait in the poller of this process."""
        from reliability_airflow.poller import poller

        await asyncio.sleep(LEDGER_POLL_SECONDS)
        await poller.wait()
        yield TriggerEvent({})  # type: ignore[no-untyped-call]
