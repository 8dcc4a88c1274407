"""One operator with two goals: have one step of a txid processed, have the txid committed.

Airflow's retry reaches one task only. So each does whatever is lacking on the way to its goal:
a commit task whose attempt fell begins the next one itself (rule R4). The loop asks the pure
`next_action` and does what it says: begin, submit a step, seal, commit, wait without a worker
slot, done, fail.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from reliability.core.coordinator import (
    Begin,
    Commit,
    Done,
    Fail,
    Rehearse,
    Seal,
    Submit,
    Wait,
    Work,
)
from reliability.core.definitions import Topology
from reliability.core.errors import (
    AttemptIncomplete,
    PredecessorFailed,
    SparkConnectionMissing,
)
from reliability.spark.submit import driver_environment, process_batch
from reliability_airflow.context import (
    WAIT_TIMEOUT,
    carry_source_wait,
    contact_of,
    mapped_errors,
)
from reliability_airflow.triggers import TurnTrigger

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from reliability.core.attempt import Grant
    from reliability.runner import TransactionRunner
    from reliability.transaction.plan import Committed


class TransactionOperator(SparkSubmitOperator):
    """Bring one txid of a topology to a goal.

    :param topology: the topology
    :param txid: the txid, as emit gave it (templated)
    :param step: the step that this task has processed; the others run only if they are lacking.
        None for the task that has the txid committed
    :param wait_timeout: fail if the txid's turn does not come, or its source is not ready, for so
        long
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "txid")

    def __init__(
        self,
        *,
        topology: Topology,
        txid: Any,
        step: str | None,
        wait_timeout: timedelta = WAIT_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            application=process_batch(),
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
        self.step = step
        self.wait_timeout = wait_timeout
        self._asks_since: str | None = None  # the source, look after look

    def execute(self, context: Context) -> None:
        """Work towards the goal until it is reached or somebody else has to move first."""
        from reliability.runner import TransactionRunner

        with mapped_errors():
            txid = int(self.txid)
            who = contact_of(context)
            work = self.topology.work(who.task, self.step)
            with TransactionRunner.open(self.topology, f"{work.goal.value} {txid}") as runner:
                runner.sweep()
                request = runner.contact(txid, who)
                self._advance(context, runner, txid, request.request_id, work)

    def resume(
        self,
        context: Context,
        event: Mapping[str, Any] | None = None,
        asks_since: str | None = None,
    ) -> None:
        """Go on after a wait; the event is only a hint, the ledger is asked again."""
        self._asks_since = asks_since
        self.execute(context)

    def _advance(
        self, context: Context, runner: TransactionRunner, txid: int, request_id: int, work: Work
    ) -> None:
        while True:
            action = runner.next_action(txid, request_id, work)
            match action:
                case Done():
                    return
                case Fail(error=error):
                    raise error
                case Wait():
                    self._wait(action, txid, request_id, work)
                case Commit():
                    committed = runner.commit(txid)
                    self._tell(runner, committed)
                    if not committed:  # somebody else is faster, or it is not due any more
                        self._wait(Wait("its commit"), txid, request_id, work)
                case Rehearse():
                    for difference in runner.rehearse(txid, request_id):
                        self.log.info("a replay of txid %s would change %s", txid, difference)
                case Begin() | Submit() | Seal():
                    try:
                        self._process(context, runner, txid, request_id, work, action)
                    except PredecessorFailed as fallen:
                        # not this try's fault: it waits for the predecessor and begins again
                        self.log.warning("%s", fallen)

    def _tell(self, runner: TransactionRunner, committed: Sequence[Committed]) -> None:
        for done in committed:
            self.log.info("committed %s as c=%s", done.attempt, done.commit_number)
            for difference in done.differences:
                self.log.info("replay of txid %s: %s", done.attempt.txid, difference)
            if done.replaced_attempt is not None and (old := runner.outdated_code(done.attempt)):
                self.log.warning("%s", old)

    def _wait(self, wait: Wait, txid: int, request_id: int, work: Work) -> None:
        self.log.info("txid %s waits for %s", txid, wait.reason)
        carried = None
        if wait.for_source:
            carried = carry_source_wait(self._asks_since, self.wait_timeout, f"txid {txid}")
        self.defer(
            trigger=TurnTrigger(
                topology=self.topology.name,
                txid=txid,
                request_id=request_id,
                work=work.to_json(),
                ask_source=wait.for_source,
            ),
            method_name="resume",
            kwargs=carried,
            timeout=self.wait_timeout,
        )

    def _process(
        self,
        context: Context,
        runner: TransactionRunner,
        txid: int,
        request_id: int,
        work: Work,
        action: Begin | Submit | Seal,
    ) -> None:
        """Do one act of the processing phase; what is gone meanwhile is decided anew."""
        match action:
            case Begin():
                self._check_connection()
                grant = runner.begin(txid, request_id, work)
                if grant is not None:
                    self.log.info("attempt %s begins", grant)
            case Submit(step=step):
                grant = runner.claim_step(txid, request_id, step, work)
                if grant is not None:
                    self._submit(context, runner, grant, step, request_id)
            case Seal():
                grant = runner.live_grant(txid, request_id)
                if grant is not None:
                    runner.seal(grant, work.task)
                    self.log.info("attempt %s is processed", grant)

    def _submit(
        self,
        context: Context,
        runner: TransactionRunner,
        grant: Grant,
        step: str,
        request_id: int,
    ) -> None:
        """Run spark-submit for a step, and end the step by what lies in the ledger."""
        from reliability.spark.submission import Submission
        from reliability_airflow.watch import Watch

        self.log.info("attempt %s: step %s", grant, step)
        submission = Submission(module=self.topology.module, grant=grant, step=step)
        self.application_args = submission.arguments()
        self._hook = self._get_hook()
        try:
            with Watch(grant, request_id, self._hook.on_kill):
                super().execute(context)
        except Exception as error:
            # Its JVM is gone, its Python may live on: fence it before anything else is tried.
            runner.end_attempt(grant, AttemptIncomplete(_what_happened(error)), fence=True)
            raise runner.error_of(grant) from error
        runner.end_step(grant, step)

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


def _what_happened(error: Exception) -> str:
    first_line = str(error).split("\n", 1)[0][:300]
    return f"spark-submit ended before the attempt was complete ({first_line})"
