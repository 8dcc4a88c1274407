"""One operator with two goals: have a txid processed, have it committed.

Airflow's retry reaches one task only. So each does whatever is lacking on the way to its goal:
a commit task whose attempt fell begins the next one itself (rule R4). The loop asks the pure
`next_action` and does what it says: submit, commit, wait without a worker slot, done, fail.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from reliability.core.coordinator import Begin, Commit, Done, Fail, Goal, Wait
from reliability.core.definitions import Topology
from reliability.core.errors import AttemptIncomplete, SparkConnectionMissing
from reliability_airflow.context import contact_of, mapped_errors
from reliability_airflow.triggers import TurnTrigger

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from reliability.core.attempt import Grant
    from reliability.runner import TransactionRunner

WAIT_TIMEOUT = timedelta(days=7)


class TransactionOperator(SparkSubmitOperator):
    """Bring one txid of a topology to a goal.

    :param topology: the topology
    :param txid: the txid, as emit gave it (templated)
    :param goal: processed or committed
    :param wait_timeout: fail if the txid's turn does not come for so long
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "txid")

    def __init__(
        self,
        *,
        topology: Topology,
        txid: Any,
        goal: Goal,
        wait_timeout: timedelta = WAIT_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            application=_process_batch(),
            name=f"reliability-{topology.name}",
            # The default would take a finished application of an earlier run for this one's,
            # and a replay would not process.
            durable=False,
            weight_rule="absolute",
            map_index_template="txid {{ task.txid }}",
            **kwargs,
        )
        self.topology = topology
        self.txid = txid
        self.goal = goal
        self.wait_timeout = wait_timeout

    def execute(self, context: Context) -> None:
        """Work towards the goal until it is reached or somebody else has to move first."""
        from reliability.runner import TransactionRunner

        with mapped_errors():
            txid = int(self.txid)
            with TransactionRunner.open(self.topology, f"{self.goal.value} {txid}") as runner:
                runner.sweep()
                request = runner.contact(txid, contact_of(context))
                self._advance(context, runner, txid, request.request_id)

    def resume(self, context: Context, event: Mapping[str, Any] | None = None) -> None:
        """Go on after a wait; the event is only a hint, the ledger is asked again."""
        self.execute(context)

    def _advance(
        self, context: Context, runner: TransactionRunner, txid: int, request_id: int
    ) -> None:
        while True:
            action = runner.next_action(txid, request_id, self.goal)
            match action:
                case Done():
                    return
                case Fail(error=error):
                    raise error
                case Wait(reason=reason):
                    self._wait(reason, txid, request_id)
                case Commit():
                    for done in runner.commit(txid):
                        self.log.info("committed %s as c=%s", done.attempt, done.commit_number)
                case Begin():
                    self._check_connection()
                    grant = runner.begin(txid, request_id)
                    if grant is not None:
                        self._process(context, runner, grant, request_id)

    def _wait(self, reason: str, txid: int, request_id: int) -> None:
        self.log.info("txid %s waits for %s", txid, reason)
        self.defer(
            trigger=TurnTrigger(
                topology=self.topology.name,
                txid=txid,
                request_id=request_id,
                goal=self.goal.value,
            ),
            method_name="resume",
            timeout=self.wait_timeout,
        )

    def _process(
        self, context: Context, runner: TransactionRunner, grant: Grant, request_id: int
    ) -> None:
        """Run spark-submit for an attempt, and seal the attempt by what lies in the ledger."""
        from reliability.spark.submission import Submission
        from reliability_airflow.watch import Watch

        self.log.info("attempt %s begins", grant)
        submission = Submission(module=self.topology.module, grant=grant)
        self.application_args = submission.arguments()
        self._hook = self._get_hook()
        try:
            with Watch(grant, request_id, self._hook.on_kill):
                super().execute(context)
        except Exception as error:
            # Its JVM is gone, its Python may live on: fence it before anything else is tried.
            runner.end_attempt(grant, AttemptIncomplete(_what_happened(error)), fence=True)
            raise runner.error_of(grant) from error
        runner.seal(grant)
        self.log.info("attempt %s is processed", grant)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # The driver runs the pipeline's code: Airflow's secrets are none of its business.
        hook.submit = partial(hook.submit, env=driver_environment(os.environ))  # type: ignore[method-assign]
        return hook

    def _check_connection(self) -> None:
        try:
            BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise SparkConnectionMissing(f"there is no connection {self._conn_id}") from error


def driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Airflow's settings, connections and keys (G10)."""
    return {
        name: value
        for name, value in environment.items()
        if not name.lstrip("_").startswith("AIRFLOW")
    }


def _what_happened(error: Exception) -> str:
    first_line = str(error).split("\n", 1)[0][:300]
    return f"spark-submit ended before the attempt was complete ({first_line})"


def _process_batch() -> str:
    spec = find_spec("spark_apps.process_batch")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin
