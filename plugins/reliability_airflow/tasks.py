"""The short tasks of a topology's DAG: emit, close, settle, and unanchored side work.

The topology is in a closure: as an argument it would be written into the serialized DAG, where the
address of a function would make every parse a new version of the DAG.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import task

from reliability.core.definitions import Topology
from reliability.core.errors import NotInATestRun, RunUnsatisfied, SourceNotReady
from reliability.core.txids import format_txids
from reliability_airflow.assets import alias_of
from reliability_airflow.context import (
    DRY_RUN,
    FAILED,
    REFREEZE,
    contact_of,
    dry_run_notice,
    has_task_ended,
    interval_of,
    interval_to_read,
    is_asked_for,
    is_left_out,
    mapped_errors,
    run_of,
    task_states,
    txids_to_replay,
)
from reliability_airflow.releases import AirflowFailException, AirflowSkipException, is_test_run
from reliability_airflow.schedule import active_runs_limit, schedule_of
from reliability_airflow.triggers import SOURCE_POLL_SECONDS, PauseTrigger, TaskEndedTrigger
from reliability_airflow.waiting import WaitingOperator

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, Context

    from reliability.core.spout import Interval
    from reliability.ledger.connection import LedgerConnection
    from reliability.transaction.emit.requests import Run

logger = logging.getLogger(__name__)

#: What the ids of runs begin with that `airflow tasks test` makes.
TEMPORARY_RUN = "__airflow_temporary_run_"
#: How long a run waits for one of an earlier interval to emit: with its worker slot, and in all.
EARLIER_SECONDS = 5.0
EARLIER_PATIENCE = timedelta(minutes=30)
EARLIER_POLL_SECONDS = 0.5


class EmitOperator(WaitingOperator):
    """The first task of the DAG; it returns the run's txids."""

    def __init__(self, *, topology: Topology, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topology = topology
        self._emitted: list[int] = []

    def get_openlineage_facets_on_complete(self, _: Any) -> OperatorLineage[Any, Any]:
        """Return what OpenLineage is told of the run's txids."""
        from reliability_airflow.lineage import of_emission

        return of_emission(self.topology, self._emitted)

    def execute(self, context: Context) -> list[int]:
        """Allocate the interval's source items to txids; wait while the source is not ready.

        A run that names the txids to replay allocates none, and needs no source.
        """
        from airflow.configuration import conf

        from reliability.transaction.emit.emission import emit

        if self.scope and is_left_out(context):
            # No skip: a group behind this one may be what the run is for.
            self.log.info("this run is a replay or a dry run of other topologies: nothing to emit")
            return []
        with mapped_errors(self.topology.name):
            _check_run_stays(context["dag_run"].run_id)
        try:
            name = self.topology.name
            with self.ledger(f"{name} emit", name) as connection:
                interval = interval_to_read(context, self.topology.spout)
                if is_asked_for(DRY_RUN, context):
                    self.log.warning("%s", dry_run_notice(context))
                elif self._reads_dates(context, interval) and not is_test_run():
                    self._wait_for_earlier(connection, context)
                self._emitted = emit(
                    connection,
                    self.topology,
                    interval,
                    contact_of(context),
                    max_batches=conf.getint("core", "max_map_length"),
                    refreeze=is_asked_for(REFREEZE, context),
                    replay=txids_to_replay(context),
                    schedule=schedule_of(context["ti"].task.dag),
                    takes_over=active_runs_limit(context["ti"].task.dag.timetable) == 1,
                )
                return self._emitted
        except SourceNotReady as error:
            if is_test_run():
                raise AirflowFailException(str(error)) from error
            kwargs = self.carried("source", error)
            self.log.info("%s", error)
            # wait without holding a worker slot and without using a retry
            trigger = PauseTrigger(SOURCE_POLL_SECONDS)
            self.defer(trigger=trigger, method_name="resume", kwargs=kwargs)

    def _reads_dates(self, context: Context, interval: Interval | None) -> bool:
        """Say whether the run reads by the date that it has in Airflow, and emits."""
        own = interval_of(context) if self.topology.spout.timed else None
        return own is not None and own == interval and txids_to_replay(context) is None

    def _wait_for_earlier(self, connection: LedgerConnection, context: Context) -> None:
        """Let the run of the interval before emit first, so that txids follow the dates.

        The emissions of a backfill run side by side. A rollback takes back all txids from one on:
        it could not be told by date otherwise.
        """
        until = time.monotonic() + EARLIER_SECONDS
        while (earlier := self._earlier_to_emit(connection, context)) is not None:
            if time.monotonic() < until:
                time.sleep(EARLIER_POLL_SECONDS)
                continue
            try:
                kwargs = self.carried("earlier", TimeoutError(), EARLIER_PATIENCE)
            except TimeoutError:
                self.log.warning("does not wait any longer for %s to emit first", earlier)
                return
            self.log.info("waits for %s, a run of an earlier interval, to emit", earlier)
            trigger = PauseTrigger(EARLIER_POLL_SECONDS)
            self.defer(trigger=trigger, method_name="resume", kwargs=kwargs)

    def _earlier_to_emit(self, connection: LedgerConnection, context: Context) -> str | None:
        """Return the id of the run of the interval before, if it is about to allocate txids."""
        from reliability.transaction.emit.emission import has_ended

        ti, run = context["ti"], run_of(context)
        before = ti.get_previous_dagrun()
        if before is None or before.state != "running":
            return None
        both = (replace(run, run_id=before.run_id), run)
        if any(has_ended(connection, self.topology.name, each) for each in both):
            return None
        # A replay, a dry run, and one whose emit is skipped or never starts allocate none.
        if has_task_ended(run.dag_id, before.run_id, ti.task_id, -1):
            return None
        return str(before.run_id)


def _check_run_stays(run_id: str) -> None:
    """Check that the run is none that `airflow tasks test` has made for this task alone."""
    if run_id.startswith(TEMPORARY_RUN):
        raise NotInATestRun(
            f"run {run_id} is deleted when this task ends, and nobody would process what it emits"
        )


class CloseOperator(WaitingOperator):
    """The teardown of a transaction: close the run's open request for the txid.

    So tasks that still wait for the txid, or work on it, fail at once.

    :param commit_task: the id of the task that commits the txid
    """

    template_fields: Sequence[str] = ("txid",)

    def __init__(self, *, topology: Topology, txid: Any, commit_task: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topology = topology
        self.txid = txid
        self.commit_task = commit_task

    def execute(self, context: Context) -> None:
        """Close the run's request for the txid, unless it is satisfied.

        First wait for the task that commits it. Airflow starts a mapped task that a clear has added
        without its upstream tasks.
        """
        self._wait_for_commit(context)
        self._close(context)

    def _wait_for_commit(self, context: Context) -> None:
        ti = context["ti"]
        map_index = ti.map_index if ti.map_index is not None else -1
        commit = (ti.dag_id, ti.run_id, self.commit_task, map_index)
        if not has_task_ended(*commit):
            self.log.info("txid %s waits for %s to end", self.txid, self.commit_task)
            self.defer(trigger=TaskEndedTrigger(*commit), method_name="resume")

    def _close(self, context: Context) -> None:
        from reliability.transaction.emit.requests import close

        name, txid, run = self.topology.name, int(self.txid), run_of(context)
        index = context["ti"].map_index
        has_failed = index in _failed_instances(run, self.commit_task, index)
        with self.ledger(f"{name} close", name, txid) as connection:
            close(connection, name, txid, run, "its tasks ended without it", has_failed=has_failed)


def _failed_instances(run: Run, task_id: str, map_index: int | None = None) -> set[int]:
    """Ask Airflow which instances of a mapped task, or whether one, failed or could not start."""
    states = task_states(run.dag_id, run.run_id, task_id, map_index).items()
    indexes = {name.removeprefix(f"{task_id}_") for name, state in states if state in FAILED}
    return {int(index) for index in indexes if index.isdecimal()}


class SettleOperator(WaitingOperator):
    """The last task of the DAG, which makes the run green or red.

    This teardown decides the run's state. Otherwise, when a person marks a run, Airflow would
    derive the state from the skipped tasks.
    """

    template_fields: Sequence[str] = ("txids",)
    purpose = "settle"

    def __init__(
        self,
        *,
        topology: Topology,
        txids: Any,
        emit_task: str = "emit",
        commit_task: str = "transaction.commit",
        assets: Sequence[Asset] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topology = topology
        self.txids = txids
        self.emit_task = emit_task
        self.commit_task = commit_task
        self.assets = assets

    def execute(self, context: Context) -> list[int]:
        """Succeed only if the ledger shows that everything this run requested is done.

        :returns: the txids that the run has committed; none if it was a dry run
        """
        name, run = self.topology.name, run_of(context)
        # Its ids may be of an earlier time: XCom is wiped when emit runs, not when it is cleared.
        emit = self._state_of_emit(run) or ("success" if self.txids is not None else "")
        txids = [int(txid) for txid in self.txids or []] if emit == "success" else []
        failed = _failed_instances(run, self.commit_task) if txids else ()
        not_committed = [txid for index, txid in enumerate(txids) if index in failed]
        with self.ledger(f"{name} {self.purpose}", name) as connection:
            try:
                committed = self.check(connection, run, txids, not_committed)
            except RunUnsatisfied as error:
                if emit in ("success", "skipped"):
                    raise
                raise self._without(emit, run) from error
            if emit == "skipped":
                if txids_to_replay(context) or any(
                    is_asked_for(what, context) for what in (REFREEZE, DRY_RUN)
                ):
                    raise self._without(emit, run)  # who asks for a replay gets one, or red
                raise AirflowSkipException("nothing was to be emitted")
            if emit != "success":
                raise self._without(emit, run)
        if self.txids is not None:  # others are those of a deleted run that had its id
            committed = [txid for txid in committed if txid in txids]
        if is_asked_for(DRY_RUN, context):
            self.log.warning("%s", dry_run_notice(context))
        if committed:
            extra: dict[str, Any] = {"topology": name, "txids": format_txids(committed)}
            for asset in self.assets:
                context["outlet_events"][alias_of(self.topology)].add(asset, extra=extra)
        return committed

    def check(
        self, connection: LedgerConnection, run: Run, txids: list[int], failed: list[int]
    ) -> list[int]:
        """Return what has committed; close what is not done, and raise.

        :param failed: the txids whose commit tasks have failed
        """
        from reliability.transaction.emit.requests import settle
        from reliability.transaction.emit.source_items import tell_source

        committed = settle(connection, self.topology.name, run, txids, failed)
        tell_source(connection, self.topology, committed)
        return committed

    def _state_of_emit(self, run: Run) -> str:
        return task_states(run.dag_id, run.run_id, self.emit_task).get(self.emit_task) or ""

    def _without(self, emit: str, run: Run) -> RunUnsatisfied:
        what = f"run {run.run_id} of {run.dag_id}: its task `{self.emit_task}` did not "
        if emit in ("upstream_failed", "skipped"):
            remedy = "mend the tasks before that one, and clear them with what is behind them."
            return RunUnsatisfied(f"{what}start", remedy=remedy)
        return RunUnsatisfied(
            f"{what}succeed",
            remedy=f"read the log of the run's task `{self.emit_task}`, fix what it names, and "
            "clear that task with those behind it.",
        )


class CommittedOperator(SettleOperator):
    """The last task of a group for what is behind it in the DAG; it changes nothing.

    It starts when the group's transactions have ended, and is what `group >> task` means: settle is
    a teardown, for which no other task waits.
    """

    purpose = "committed"

    def execute(self, context: Context) -> list[int]:
        """Return what the run has committed.

        :raises AirflowSkipException: nothing was to be emitted, or it is a dry run
        """
        committed = super().execute(context)
        if is_asked_for(DRY_RUN, context):
            raise AirflowSkipException("a dry run: what is behind the group is skipped with it")
        return committed

    def check(
        self, connection: LedgerConnection, run: Run, txids: list[int], failed: list[int]
    ) -> list[int]:
        """Return what has committed; raise if anything is not done."""
        from reliability.transaction.emit.requests import settled

        return settled(connection, self.topology.name, run, txids, failed)


def unanchored_task(topology: Topology, txids: Any, function: Callable[[str, int], None]) -> Any:
    """Return the tasks of side work, one per committed txid; not part of the transactions.

    These teardowns do not decide the run's state; settle does.
    """

    @task(task_id=function.__name__)
    def unanchored(txid: int) -> None:
        """Side work of one txid."""
        run_unanchored(function, topology.name, int(txid))

    return unanchored.expand(txid=txids).as_teardown()


def run_unanchored(function: Callable[[str, int], None], topology: str, txid: int) -> None:
    """Call the function; its errors are logged and fail neither the txid nor the run."""
    try:
        function(topology, txid)
    except Exception as error:
        logger.exception("side work of txid %s failed", txid)
        raise AirflowSkipException(f"{function.__name__} failed: {error}") from error
