"""Triggers: what a task waits for without holding a worker slot."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from reliability.core.coordinator import Blocked

SOURCE_POLL_SECONDS = 30
BLOCKED_POLL_SECONDS = 15
TASK_POLL_SECONDS = 15
LEDGER_POLL_SECONDS = 10


class ResumingTrigger(BaseTrigger):
    """A trigger that a task resumes by; the event is a hint, the task reads the ledger again."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire when the wait is over, and the scheduler knows that the task has left its worker."""
        from reliability_airflow.executor_events import heartbeats

        if self.trigger_id is None:  # `dag.test()` runs it, without a scheduler
            await self.wait()
        else:
            await asyncio.gather(heartbeats.events_are_processed(), self.wait())
        yield TriggerEvent({})  # type: ignore[no-untyped-call]

    @abstractmethod
    async def wait(self) -> None:
        """Return when the task should look again."""


class PauseTrigger(ResumingTrigger):
    """Fire after some seconds: only the task itself can look."""

    def __init__(self, seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how to create this trigger again."""
        return ("reliability_airflow.triggers.PauseTrigger", {"seconds": self.seconds})

    async def wait(self) -> None:
        """Let the time pass."""
        await asyncio.sleep(self.seconds)


class TaskEndedTrigger(ResumingTrigger):
    """Fire when a mapped task of a run has ended."""

    def __init__(self, dag_id: str, run_id: str, awaited: str, map_index: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id = dag_id
        self.run_id = run_id
        self.awaited = awaited  # Airflow sets task_id to that of the waiting task
        self.map_index = map_index

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how to create this trigger again."""
        return (
            "reliability_airflow.triggers.TaskEndedTrigger",
            {
                "dag_id": self.dag_id,
                "run_id": self.run_id,
                "awaited": self.awaited,
                "map_index": self.map_index,
            },
        )

    async def wait(self) -> None:
        """Ask Airflow now and then."""
        from reliability_airflow.context import has_task_ended

        task = (self.dag_id, self.run_id, self.awaited, self.map_index)
        while not await asyncio.to_thread(has_task_ended, *task):
            await asyncio.sleep(TASK_POLL_SECONDS)


class TurnTrigger(ResumingTrigger):
    """Fire when the task has something to do."""

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

    async def wait(self) -> None:
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

    def _log_change(self, before: Blocked | None, now: Blocked | None) -> Blocked | None:
        """Say in the task's log when the txid is blocked, and when it is no longer."""
        if now is not None and now != before:
            self.log.warning("txid %s waits: %s", self.txid, now.advice(self.topology))
        elif now is None and before is not None:
            self.log.info("txid %s is no longer blocked by txid %s", self.txid, before.txid)
        return now


class LedgerTrigger(ResumingTrigger):
    """Fire when the ledger answers again, but not before a few seconds have passed."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how to create this trigger again."""
        return ("reliability_airflow.triggers.LedgerTrigger", {})

    async def wait(self) -> None:
        """Wait in the poller of this process."""
        from reliability_airflow.poller import poller

        await asyncio.sleep(LEDGER_POLL_SECONDS)
        await poller.wait()
