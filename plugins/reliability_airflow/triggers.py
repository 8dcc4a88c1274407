"""Triggers: wait for a txid's turn, or for the ledger, without holding a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

SOURCE_POLL_SECONDS = 30
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
        await poller.wait(
            topology=self.topology,
            txid=self.txid,
            request_id=self.request_id,
            work=Work.from_json(self.work),
        )
        yield TriggerEvent({"txid": self.txid})  # type: ignore[no-untyped-call]


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
