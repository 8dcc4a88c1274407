"""One operator with two goals: have one step of a txid processed, or have the txid committed.

Airflow retries one task only. So each task does everything that is missing for its goal: a commit
task whose attempt failed begins the next one itself (R4). The loop is in
`reliability.transaction.run`; this module submits steps, and waits without a worker slot.
"""

from __future__ import annotations

import logging
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reliability.core.coordinator import Wait
from reliability.core.definitions import WARM, Topology
from reliability.core.errors import NotInATestRun, SourceNotReady
from reliability.core.names import TXID_LABEL
from reliability.deployment.address import using
from reliability.deployment.settings import engine_of
from reliability.deployment.topologies import folder_of
from reliability_airflow.assets import tell_commit
from reliability_airflow.context import REFREEZE, contact_of, is_asked_for, run_of
from reliability_airflow.links import LINKS
from reliability_airflow.releases import is_test_run, texts_stay_texts
from reliability_airflow.stats import TopologyStats
from reliability_airflow.triggers import TurnTrigger
from reliability_airflow.waiting import WaitingOperator

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from reliability.core.attempt import Grant
    from reliability.ledger.connection import LedgerConnection
    from reliability.spark.launch import Driver, Launcher
    from reliability.transaction.commit.apply import Committed
    from reliability.transaction.process.begin import TransactionTask


#: How long a task keeps its worker slot while one more txid is ahead of its own
NEAR_SECONDS = 5.0
NEAR_POLL_SECONDS = 0.5
_SENSITIVE = re.compile(r"((?:secret|password|token|Env\.)[^=\s]*=).+", re.IGNORECASE | re.DOTALL)


class TransactionOperator(WaitingOperator):
    """Bring one txid of a topology to a goal.

    :param topology: the topology
    :param txid: the txid that emit returned (templated)
    :param step: the step that this task processes; others run only if they are missing. None for
        the task that commits the txid
    :param conn_id: the Airflow connection to Spark
    :param conf: Spark's properties; no secrets, because ps shows them (templated)
    :param env_vars: environment variables of the driver (templated); in deploy mode cluster Spark's
        conf has them, so no secrets either
    :param wait_timeout: fail if the txid's source or the ledger is unavailable for so long; how
        long to wait for its turn is the topology's `blocked_timeout_seconds`
    """

    template_fields: Sequence[str] = ("txid", "conf", "env_vars")
    operator_extra_links = LINKS

    def __init__(
        self,
        *,
        topology: Topology,
        txid: Any,
        step: str | None,
        conn_id: str = "spark_default",
        conf: dict[str, Any] | None = None,
        env_vars: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            weight_rule="absolute",
            map_index_template=f"{TXID_LABEL}{{{{ task.txid }}}}",
            **texts_stay_texts(),  # of conf and env_vars
            **kwargs,
        )
        self.topology = topology
        self.txid = txid
        self.step = step
        self.conn_id = conn_id
        self.conf = conf
        self.env_vars = env_vars
        self.blocking_run: tuple[str, str] | None = None  # dag_id, run_id
        self._driver: Driver | None = None
        self._stays_since: float | None = None

    def execute(self, context: Context) -> None:
        """Work towards the goal until it is reached or the task has to wait."""
        from reliability.transaction.emit.requests import contact
        from reliability.transaction.maintain.sweep import sweep
        from reliability.transaction.process.begin import TransactionTask
        from reliability.transaction.run import run_transaction

        topology, txid, who = self.topology, int(self.txid), contact_of(context)
        work = topology.work(who.task, self.step)
        purpose = f"{topology.name} {work.goal.value} {txid}"
        stats = TopologyStats(topology.name)
        with self.ledger(purpose, topology.name, txid) as connection:
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
                dry_run = run_transaction(connection, task, executor)
            if self.step is None and not dry_run:
                tell_commit(context, connection, topology, txid)
            for difference in dry_run.differences if dry_run else ():
                self.log.info("a replay of txid %s would change %s", txid, difference)
            for outcome in dry_run.violated if dry_run else ():
                self.log.warning("%s", outcome.foretell(f"a replay of txid {txid}"))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return what OpenLineage is told when the task has ended, in whatever way."""
        from reliability.transaction.emit.requests import Run
        from reliability_airflow.lineage import of_transaction

        run = Run(dag_id=task_instance.dag_id, run_id=task_instance.run_id)
        with using(self.conn_ids):
            return of_transaction(self.topology, int(self.txid), run, commits=self.step is None)

    def submit(
        self, context: Context, connection: LedgerConnection, grant: Grant, step: str
    ) -> None:
        """Run the driver of a step while it is still needed."""
        from reliability.spark.launch import Driver
        from reliability.spark.submission import Submission
        from reliability.transaction.process.attempt_messages import is_wanted

        submission = Submission(module=self.topology.module, grant=grant, step=step)
        with self._launcher(context) as launcher:
            words = (_SENSITIVE.sub(r"\1***", word) for word in launcher.command(submission))
            self.log.info("%s", shlex.join(words))
            self._driver = Driver(launcher, submission, self.topology.databases_of_steps)
            self._driver.run(partial(is_wanted, connection, grant), self.log.info)

    @contextmanager
    def _launcher(self, context: Context) -> Iterator[Launcher]:
        """Return what starts drivers: a DAG bundle is on the path of this task only."""
        from reliability.spark.launch import WarmEngine
        from reliability_airflow.spark_connection import spark_submit, with_parent

        folder, env_vars = folder_of(self.topology.module), self.env_vars or {}
        code = [folder] if folder else []
        if engine_of(self.topology) == WARM:
            if self.conf:
                self.log.warning("the task's conf is not used: the warm engine has its own")
            yield WarmEngine(variables=env_vars, code=code)
        else:
            conf = with_parent(self.conf or {}, context)
            with spark_submit(self.conn_id, conf, env_vars, code) as submit:
                yield submit

    def on_kill(self) -> None:
        """End the driver."""
        if self._driver is not None:
            self._driver.end()

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
            self.blocking_run = by[-1] if by else (wait.blocked.dag_id, wait.blocked.run_id)
            self.log.warning("%s", wait.blocked.advice(self.topology.name))
        carried = None
        if wait.for_source:
            carried = self.carried("source", SourceNotReady(f"it waits {wait}", txid=task.txid))
        self.defer(
            trigger=TurnTrigger(
                topology=self.topology.name,
                txid=task.txid,
                request_id=task.request_id,
                work=task.work.to_json(),
                ask_source=wait.for_source,
                **self.named_connections,
            ),
            method_name="resume",
            kwargs=carried,
        )

    def _may_stay(self) -> bool:
        now = time.monotonic()
        self._stays_since = now if self._stays_since is None else self._stays_since
        return now - self._stays_since < NEAR_SECONDS

    def check_engine(self) -> None:
        """Raise if there is no warm engine, or no connection with which spark-submit works."""
        from reliability.spark.engine_socket import check_engine
        from reliability_airflow.spark_connection import check_connection

        if engine_of(self.topology) == WARM:
            check_engine()
        else:
            check_connection(self.conn_id, self.conf or {})


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
        self.operator.submit(self.context, self.connection, grant, step)

    def wait(self, wait: Wait) -> None:
        if is_test_run():
            self._do_what_comes_later(wait)
        else:
            self.operator.wait(wait, self.task)

    def _do_what_comes_later(self, wait: Wait) -> None:
        """Commit the run's first txid that is not done: its own tasks come after this one.

        :raises NotInATestRun: the wait is for something else
        """
        from reliability.transaction.run import run_transaction

        key = {"topology": self.task.topology.name, **run_of(self.context)}
        rows = self.connection.all("latest_requests_of_run", **key)
        earlier = [r for r in rows if r["txid"] < self.task.txid and not r["is_done"]]
        if not earlier:
            raise NotInATestRun(f"it would wait {wait}", txid=self.task.txid)
        first = replace(
            self.task,
            txid=earlier[0]["txid"],
            request_id=earlier[0]["request_id"],
            work=self.task.topology.work(self.task.work.task),
        )
        self.report(f"txid {self.task.txid} waits {wait}: txid {first.txid} is committed before")
        run_transaction(self.connection, first, replace(self, task=first))

    def committed(self, committed: Sequence[Committed]) -> None:
        from reliability.transaction.inspect.attempt_report import attempt_report, outdated_code

        self.stats.committed(self.connection, committed)
        log = self.operator.log
        for done in committed:
            log.info("committed %s as c=%s", done.attempt, done.commit_number)
            for difference in done.differences:
                log.info("replay of txid %s: %s", done.attempt.txid, difference)
            if done.replaced_attempt is None:
                continue
            report = attempt_report(self.connection, self.task.topology.name, done.attempt)
            if old := outdated_code(self.connection, report):
                log.warning("%s", old)

    def report(self, what: str, level: int = logging.INFO) -> None:
        self.operator.log.log(level, "%s", what)
