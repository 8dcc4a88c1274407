"""The short tasks of a topology's DAG: emit, close, settle.

They hold the topology in their closure: as an argument it would be written into the serialized
DAG, and a function's address in it would make every parse a new version of the DAG.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import TriggerRule, get_current_context, task

from reliability.core.definitions import Topology
from reliability.core.errors import RunUnsatisfied
from reliability_airflow.context import contact_of, interval_of, mapped_errors, run_of


def emit_task(topology: Topology) -> Any:
    """Return the first task of the DAG; its result are the run's txids."""

    @task
    def emit() -> list[int]:
        """Give the data interval's source items their txids; return ids only."""
        from airflow.configuration import conf

        from reliability.runner import TransactionRunner

        context = get_current_context()
        with mapped_errors(), TransactionRunner.open(topology, "emit") as runner:
            return runner.emit(
                interval_of(context),
                contact_of(context),
                most_batches=conf.getint("core", "max_map_length"),
            )

    return emit()


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
            if txids is None:
                raise RunUnsatisfied("emit did not end well")
            runner.settle(run, [int(txid) for txid in txids])

    return settle(txids)
