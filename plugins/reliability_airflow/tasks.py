"""The short tasks of a topology's DAG: emit, close, settle, and unanchored side work.

Functions hold the topology in their closure: as an argument it would be written into the
serialized DAG, and a function's address in it would make every parse a new version of the DAG.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from reliability.core.definitions import Topology
from reliability.core.errors import RunUnsatisfied, SourceNotReady
from reliability_airflow.context import (
    REFREEZE,
    WAIT_TIMEOUT,
    carry_source_wait,
    contact_of,
    interval_of,
    mapped_errors,
    run_of,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)
ASK_SOURCE_EVERY = timedelta(seconds=30)


class EmitOperator(BaseOperator):
    """The first task of the DAG; its result are the run's txids."""

    def __init__(
        self, *, topology: Topology, wait_timeout: timedelta = WAIT_TIMEOUT, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.topology = topology
        self.wait_timeout = wait_timeout
        self._asks_since: str | None = None  # the source, look after look

    def execute(self, context: Context) -> list[int]:
        """Give the data interval's source items their txids; wait while the source is not ready."""
        from airflow.configuration import conf

        from reliability.runner import TransactionRunner

        try:
            with mapped_errors(), TransactionRunner.open(self.topology, "emit") as runner:
                return runner.emit(
                    interval_of(context),
                    contact_of(context),
                    most_batches=conf.getint("core", "max_map_length"),
                    refreeze=bool(context["params"].get(REFREEZE, False)),
                )
        except SourceNotReady as error:
            self.log.info("%s", error)
            # no worker slot is held meanwhile, and no retry is spent on it
            self.defer(
                trigger=TimeDeltaTrigger(ASK_SOURCE_EVERY),
                method_name="resume",
                kwargs=carry_source_wait(self._asks_since, self.wait_timeout, "emit"),
            )

    def resume(
        self, context: Context, event: Any = None, asks_since: str | None = None
    ) -> list[int]:
        """Ask the source again."""
        self._asks_since = asks_since
        return self.execute(context)


def close_task(topology: Topology, txid: Any) -> Any:
    """Return the teardown of a transaction."""

    @task
    def close(txid: int) -> None:
        """What is not done when its tasks have ended is not waited for any more."""
        from reliability.runner import TransactionRunner

        run = run_of(get_current_context())
        with mapped_errors(), TransactionRunner.open(topology, "close") as runner:
            runner.close(int(txid), run, "its tasks ended without it")

    return close(txid).as_teardown()


def settle_task(topology: Topology, txids: Any) -> Any:
    """Return the last task of the DAG, which makes the run green or red."""

    @task(trigger_rule=TriggerRule.ALL_DONE)
    def settle(txids: list[int] | None) -> None:
        """Green only if the ledger shows that all this run asked for is done."""
        from reliability.runner import TransactionRunner

        run = run_of(get_current_context())
        with mapped_errors(), TransactionRunner.open(topology, "settle") as runner:
            # XCom is wiped when emit starts again: no ids means that emit did not end well.
            runner.settle(run, [int(txid) for txid in txids or []])
            if txids is None:
                raise RunUnsatisfied("emit did not end well")

    return settle(txids)


def unanchored_task(topology: Topology, txids: Any, function: Callable[[str, int], None]) -> Any:
    """Return the tasks of side work, one a txid; they are not part of the transactions."""

    @task(task_id=function.__name__)
    def unanchored(txid: int) -> None:
        """Side work of one txid."""
        run_unanchored(function, topology.name, int(txid))

    return unanchored.expand(txid=txids)


def run_unanchored(function: Callable[[str, int], None], topology: str, txid: int) -> None:
    """Call the function; what it raises is in the log, and fails neither the txid nor the run."""
    try:
        function(topology, txid)
    except Exception as error:
        logger.exception("side work of txid %s failed", txid)
        raise AirflowSkipException(f"{function.__name__} failed: {error}") from error
