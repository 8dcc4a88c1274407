"""Triggers: what a task waits for without holding a worker slot."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from reliability.core.coordinator import Blocked

SOURCE_POLL_SECONDS = 30
BLOCKED_POLL_SECONDS = 15
TASK_POLL_SECONDS = 15
LEDGER_POLL_SECONDS = 10


@dataclass(eq=False, repr=False)
class ResumingTrigger(BaseTrigger):
    """A trigger that a task resumes by; the event is a hint, the task reads the ledger again.

    Its fields are what Airflow creates it from again: ids only, never a DSN.
    """

    def __post_init__(self) -> None:
        BaseTrigger.__init__(self)  # type: ignore[no-untyped-call]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how to create this trigger again."""
        return f"{__name__}.{type(self).__name__}", asdict(self)

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


@dataclass(eq=False, repr=False)
class PauseTrigger(ResumingTrigger):
    """Fire after some seconds: only the task itself can look."""

    seconds: float

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(eq=False, repr=False)
class TaskEndedTrigger(ResumingTrigger):
    """Fire when a mapped task of a run has ended.

    :param awaited: its task_id; Airflow sets `task_id` to that of the waiting task
    """

    dag_id: str
    run_id: str
    awaited: str
    map_index: int

    async def wait(self) -> None:
        from reliability_airflow.context import has_task_ended

        task = (self.dag_id, self.run_id, self.awaited, self.map_index)
        while not await asyncio.to_thread(has_task_ended, *task):
            await asyncio.sleep(TASK_POLL_SECONDS)


@dataclass(eq=False, repr=False)
class TurnTrigger(ResumingTrigger):
    """Fire when the task has something to do.

    :param work: plain data of what the task does at its turn
    :param ledger_conn_id: the connection of Airflow that leads to the ledger, if the DAG names one
    :param database_conn_ids: the same for other databases, by their names
    """

    topology: str
    txid: int
    request_id: int
    work: dict[str, Any]
    ask_source: bool = False
    ledger_conn_id: str | None = None
    database_conn_ids: dict[str, str] | None = None

    async def wait(self) -> None:
        from reliability.core.coordinator import Work
        from reliability_airflow.poller import poller_of

        poller = poller_of(self.ledger_conn_id, self.database_conn_ids)

        if self.ask_source:  # only the task can ask the spout: this process has no pipeline code
            await asyncio.sleep(SOURCE_POLL_SECONDS)
        work, key = Work.from_json(self.work), {"txid": self.txid, "request_id": self.request_id}
        turn = asyncio.ensure_future(poller.wait(topology=self.topology, work=work, **key))
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


@dataclass(eq=False, repr=False)
class LedgerTrigger(ResumingTrigger):
    """Fire when the ledger answers again, but not before a few seconds have passed.

    Its fields are those of TurnTrigger.
    """

    ledger_conn_id: str | None = None
    database_conn_ids: dict[str, str] | None = None

    async def wait(self) -> None:
        from reliability_airflow.poller import poller_of

        await asyncio.sleep(LEDGER_POLL_SECONDS)
        await poller_of(self.ledger_conn_id, self.database_conn_ids).wait()
