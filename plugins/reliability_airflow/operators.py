"""One operator with two goals: have one step of a txid processed, or have the txid committed.

Airflow retries one task only. So each task does everything that is missing for its goal: a commit
task whose attempt failed begins the next one itself (rule R4). The loop is in
`reliability.transaction.run`; this module submits steps, and waits without a worker slot.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from reliability.core.coordinator import Wait
from reliability.core.definitions import WARM, Topology
from reliability.core.errors import SourceNotReady, SparkConnectionMissing
from reliability.deployment.settings import engine_of
from reliability.deployment.topologies import folder_of
from reliability.spark.submit import driver_environment, process_batch
from reliability_airflow.context import REFREEZE, contact_of, is_asked_for
from reliability_airflow.links import LINKS
from reliability_airflow.stats import TopologyStats
from reliability_airflow.triggers import TurnTrigger
from reliability_airflow.waiting import WaitingOperator

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from reliability.core.attempt import Grant, TransactionAttempt
    from reliability.ledger.connection import LedgerConnection
    from reliability.spark.submission import Submission
    from reliability.transaction.commit.next_plan import Committed
    from reliability.transaction.run import TransactionTask
    from reliability_airflow.warm_driver import WarmDriver


def _ending(code: int) -> str:
    """Say how a process ended.

    >>> _ending(1), _ending(-9)
    ('ended with code 1', 'was killed by SIGKILL')
    """
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended with code {code}"


#: How long a task keeps its worker slot while one more txid is ahead of its own
NEAR_SECONDS = 5.0
NEAR_POLL_SECONDS = 0.5
_EXIT_CODE = re.compile(r"^Cannot execute: .*Error code is: (-?\d+)", re.DOTALL)


class TransactionOperator(WaitingOperator, SparkSubmitOperator):
    """Bring one txid of a topology to a goal.

    :param topology: the topology
    :param txid: the txid that emit returned (templated)
    :param step: the step that this task processes; others run only if they are missing. None for
        the task that commits the txid
    :param wait_timeout: fail if the txid's source or the ledger is unavailable for so long; how
        long to wait for its turn is the topology's `blocked_timeout_seconds`
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "txid")
    operator_extra_links = LINKS

    def __init__(
        self,
        *,
        topology: Topology,
        txid: Any,
        step: str | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            application=process_batch(),
            name=f"reliability-{topology.name}",
            # With the default, a finished application of an earlier run would be taken for this
            # run's, and a replay would not process.
            durable=False,
            weight_rule="absolute",
            map_index_template="txid {{ task.txid }}",
            **kwargs,
        )
        self.topology = topology
        self.txid = txid
        self.step = step
        self.blocking_run: tuple[str, str] | None = None  # dag_id, run_id
        self._warm_driver: WarmDriver | None = None
        self._stays_since: float | None = None

    def execute(self, context: Context) -> None:
        """Work towards the goal until it is reached or the task has to wait."""
        from reliability.transaction.emit.requests import contact
        from reliability.transaction.maintain.sweep import sweep
        from reliability.transaction.run import TransactionTask, run_transaction
        from reliability.transaction.topology.databases import open_ledger

        topology, txid, who = self.topology, int(self.txid), contact_of(context)
        work = topology.work(who.task, self.step)
        purpose = f"{topology.name} {work.goal.value} {txid}"
        names = {"topology": topology.name, "txid": txid}
        stats = TopologyStats(topology.name)
        with self.waiting_for_ledger(**names), open_ledger(purpose) as connection:
            stats.swept(connection, sweep(connection, topology.name))
            request = contact(connection, topology.name, txid, who)
            task = TransactionTask(
                topology=topology,
                txid=txid,
                request_id=request.request_id,
                work=work,
                as_refrozen=who.is_dry_run and is_asked_for(REFREEZE, context),
            )
            executor = AirflowExecutor(self, context, connection, task, stats)
            with stats.counting_failure(connection, txid):
                found = run_transaction(connection, task, executor)
            for difference in found.differences if found else ():
                self.log.info("a replay of txid %s would change %s", txid, difference)
            for outcome in found.violated if found else ():
                self.log.warning("%s", outcome.foretell(f"a replay of txid {txid}"))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return what OpenLineage is told when the task has ended, in whatever way."""
        from reliability.transaction.emit.requests import Run
        from reliability_airflow.lineage import of_transaction

        run = Run(dag_id=task_instance.dag_id, run_id=task_instance.run_id)
        return of_transaction(self.topology, int(self.txid), run, commits=self.step is None)

    def submit(self, context: Context, grant: Grant, step: str) -> None:
        """Run the driver of a step while it is still needed."""
        from reliability.spark.submission import Submission
        from reliability_airflow.watch_attempt import Watch

        submission = Submission(module=self.topology.module, grant=grant, step=step)
        if engine_of(self.topology) == WARM:
            self._run_warm(submission)
            return
        self.application_args = submission.arguments()
        # created by execute() after it has added OpenLineage's properties to conf
        self._hook = None
        with Watch(grant, self._end_spark_submit):
            try:
                super().execute(context)
            except Exception as error:
                # The provider repeats the whole command, which says nothing about why.
                if (found := _EXIT_CODE.search(str(error))) is None:
                    raise
                what = f"spark-submit {_ending(int(found[1]))}; the task's log has its output"
                raise RuntimeError(what) from error

    def _run_warm(self, submission: Submission) -> None:
        from reliability_airflow.warm_driver import WarmDriver
        from reliability_airflow.watch_attempt import Watch

        if self.conf:
            self.log.warning("the task's conf is not used: the warm engine has its own")
        driver = self._warm_driver = WarmDriver(self.topology, submission, self.env_vars)
        try:
            with Watch(submission.grant, driver.end):
                driver.run(self.log.info)
        finally:
            driver.end()
            self._warm_driver = None

    def on_kill(self) -> None:
        """End the driver, or spark-submit."""
        if self._warm_driver is not None:
            self._warm_driver.end()
        else:
            super().on_kill()

    def _end_spark_submit(self) -> None:
        if self._hook is not None:
            self._hook.on_kill()

    def wait(self, wait: Wait, task: TransactionTask) -> None:
        """Return if the wait may soon be over; otherwise leave the worker slot.

        `resume` continues, some seconds after that at the earliest (R5).
        """
        if wait.blocked is None and wait.reason.is_next(task.txid) and self._may_stay():
            time.sleep(NEAR_POLL_SECONDS)
            return
        self.log.info("txid %s waits %s", task.txid, wait)
        if wait.blocked is not None:
            by = wait.blocked.requested_by
            self.blocking_run = by[-1] if by else (self.topology.name, wait.blocked.run_id)
            self.log.warning("%s", wait.blocked.advice(self.topology.name))
        carried = None
        if wait.for_source:
            carried = self.carried("source", SourceNotReady(f"txid {task.txid} waits {wait}"))
        self.defer(
            trigger=TurnTrigger(
                topology=self.topology.name,
                txid=task.txid,
                request_id=task.request_id,
                work=task.work.to_json(),
                ask_source=wait.for_source,
            ),
            method_name="resume",
            kwargs=carried,
        )

    def _may_stay(self) -> bool:
        now = time.monotonic()
        if self._stays_since is None:
            self._stays_since = now
        return now - self._stays_since < NEAR_SECONDS

    def check_engine(self) -> None:
        """Raise if there is no warm engine, or no connection for spark-submit."""
        from reliability.spark.engine_socket import check_engine

        if engine_of(self.topology) == WARM:
            check_engine()
        else:
            self._check_connection()

    def _check_connection(self) -> None:
        try:
            BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            missing = SparkConnectionMissing(f"Airflow has no connection {self._conn_id}")
            raise missing.fill_in(name=self._conn_id) from error

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # The driver runs the pipeline code in this task's version: a DAG bundle is on the task's
        # path only. Airflow's secrets must not reach it.
        environment = driver_environment(
            os.environ,
            code=folder_of(self.topology.module),
            master=hook._connection["master"],
            deploy_mode=hook._connection["deploy_mode"]
            or hook._conf.get("spark.submit.deployMode"),
        )
        command = hook._build_spark_submit_command

        def command_with_own_environment(application: str) -> list[str]:
            built = command(application)
            # env_vars: the hook would add them to a copy of this task's whole environment
            environment.update(hook._env or {})
            hook._env = None
            return built

        hook._build_spark_submit_command = command_with_own_environment  # type: ignore[method-assign]
        hook.submit = partial(hook.submit, env=environment)  # type: ignore[method-assign]
        return hook


@dataclass(frozen=True, slots=True)
class AirflowExecutor:
    """What an Airflow task does for `run_transaction`; to wait, it keeps its slot or leaves it."""

    operator: TransactionOperator
    context: Context
    connection: LedgerConnection
    task: TransactionTask
    stats: TopologyStats

    def check(self) -> None:
        self.operator.check_engine()

    def began(self, grant: Grant) -> None:
        self.stats.began()
        self.report(f"attempt {grant.attempt} begins")

    def submit(self, grant: Grant, step: str) -> None:
        self.operator.submit(self.context, grant, step)

    def wait(self, wait: Wait) -> None:
        self.operator.wait(wait, self.task)

    def committed(self, committed: Sequence[Committed]) -> None:
        self.stats.committed(self.connection, committed)
        log = self.operator.log
        for done in committed:
            log.info("committed %s as c=%s", done.attempt, done.commit_number)
            for difference in done.differences:
                log.info("replay of txid %s: %s", done.attempt.txid, difference)
            is_replay = done.replaced_attempt is not None
            if is_replay and (old := self._outdated_code(done.attempt)):
                log.warning("%s", old)

    def report(self, what: str, level: int = logging.INFO) -> None:
        self.operator.log.log(level, "%s", what)

    def _outdated_code(self, attempt: TransactionAttempt) -> str | None:
        from reliability.transaction.inspect.attempt_report import outdated_code

        return outdated_code(self.connection, self.task.topology.name, attempt)
