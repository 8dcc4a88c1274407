"""A topology as a DAG: emit, a task group per txid with a task per step, settle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, task_group

from reliability.core.definitions import Topology
from reliability.core.errors import InvalidDefinition
from reliability.core.graph import reads_from
from reliability_airflow.context import DRY_RUN, REASON, REFREEZE, REPLAY
from reliability_airflow.operators import TransactionOperator
from reliability_airflow.releases import latest_version
from reliability_airflow.schedule import timetable_of, zone_of_ticks
from reliability_airflow.spark_connection import NOT_PROPERTIES, PROPERTIES
from reliability_airflow.tasks import CloseOperator, EmitOperator, SettleOperator, unanchored_task

if TYPE_CHECKING:
    from reliability_airflow.releases import CronDataIntervalTimetable, DeltaDataIntervalTimetable

MIN_ACTIVE_RUNS = 2
#: More than the window, because runs that wait behind a blocked txid are active too.
ACTIVE_RUNS = 16
#: Airflow's dialog makes null of a field that a person has emptied.
_TEXT = ["string", "null"]
DEFAULT_ARGS: dict[str, Any] = {
    "owner": "reliability",
    "retries": 3,
    "retry_delay": timedelta(seconds=5),
}


def topology_dag(
    topology: Topology,
    *,
    schedule: str | timedelta | CronDataIntervalTimetable | DeltaDataIntervalTimetable | None,
    start_date: datetime,
    end_date: datetime | None = None,
    catchup: bool = True,
    max_active_runs: int | None = None,
    conn_id: str = "spark_default",
    conf: dict[str, str] | None = None,
    default_args: dict[str, Any] | None = None,
    unanchored: Sequence[Callable[[str, int], None]] = (),
    **dag_arguments: Any,
) -> DAG:
    """Make the DAG of a topology; its id is the topology's name.

    :param schedule: a cron expression or preset such as `@daily`, a timedelta, or one of Airflow's
        timetables of these with data intervals; every run gets the data interval between two ticks.
        None for runs by hand
    :param start_date: a cron expression is in its time zone; in UTC if it has none
    :param max_active_runs: how many runs work or wait at a time, at least 2; by default 16, or
        max_spout_pending if that is more. With 1, a failed run that is cleared would queue behind a
        later run that waits for it
    :param conn_id: the Airflow connection to Spark
    :param conf: Spark configuration for this topology's jobs; no secrets, because ps shows it
    :param default_args: override owner, retries, retry_delay and the like; also what is a property
        of Spark and a parameter of SparkSubmitOperator, such as `executor_memory` and `py_files`
    :param unanchored: side work for each txid that a successful run has committed, such as a metric
        or a notification: functions of (topology, txid), one task each. Not part of the
        transaction's tree: their errors are logged and fail neither the txid nor the run
    """
    active_runs = max_active_runs or max(ACTIVE_RUNS, topology.max_spout_pending)
    if active_runs < MIN_ACTIVE_RUNS:
        raise InvalidDefinition(f"topology {topology.name}: max_active_runs must be at least 2")
    if topology.spout.timed and schedule is None:
        raise InvalidDefinition(f"topology {topology.name} reads by interval: it needs a schedule")
    if lost := [name for name in NOT_PROPERTIES if (default_args or {}).get(name) is not None]:
        raise InvalidDefinition(
            f"topology {topology.name}: {' and '.join(lost)} in default_args would have no effect",
            remedy="leave it out; give properties by conf=, or in spark-defaults.conf.",
        )
    timetable = timetable_of(schedule, start_date)
    if topology.spout.timed and (zone := zone_of_ticks(timetable)) != "UTC":
        raise InvalidDefinition(
            f"topology {topology.name}: its schedule is in {zone}, and the dates in its pattern "
            "are in UTC, where a day has another start",
            remedy="give start_date in UTC, and a cron expression with the hours of UTC.",
        )
    with DAG(
        dag_id=topology.name,
        schedule=timetable,
        start_date=start_date,
        end_date=end_date,
        catchup=catchup and schedule is not None,
        max_active_runs=active_runs,
        default_args=DEFAULT_ARGS | (default_args or {}),
        tags={"reliability", *dag_arguments.pop("tags", ())},
        doc_md=dag_arguments.pop("doc_md", None) or _documentation(topology),
        params=_params() | dag_arguments.pop("params", {}),
        # A replay must run the corrected code, not the run's original code.
        **latest_version(dag_arguments.pop("rerun_with_latest_version", None)),
        **dag_arguments,
    ) as dag:
        given = (default_args or {}).items()
        named = {
            PROPERTIES[n]: value for n, value in given if n in PROPERTIES and value is not None
        }
        _build(topology, unanchored=unanchored, conn_id=conn_id, conf={**(conf or {}), **named})
    if not dag.has_task("emit"):
        raise InvalidDefinition(
            f"topology {topology.name}: topology_dag is called inside a task group",
            remedy="call it outside: it makes a DAG of its own.",
        )
    return dag


def _build(
    topology: Topology,
    *,
    unanchored: Sequence[Callable[[str, int], None]],
    conn_id: str,
    conf: dict[str, Any],
) -> None:
    @task_group(group_id="transaction")
    def transaction(txid: int) -> None:
        def task_for(task_id: str, step: str | None, priority_weight: int) -> TransactionOperator:
            return TransactionOperator(
                task_id=task_id,
                topology=topology,
                txid=txid,
                step=step,
                priority_weight=priority_weight,
                conn_id=conn_id,
                conf=conf,
            )

        # Absolute weights: by default processing would outweigh commit, and commits starve.
        commit = task_for("commit", None, priority_weight=100)
        upstream = reads_from(topology.steps)
        steps = {s.name: task_for(s.name, s.name, priority_weight=1) for s in topology.steps}
        for name, task in steps.items():
            [steps[read] for read in upstream[name]] >> task
            task >> commit
        close = CloseOperator(
            task_id="close", topology=topology, txid=txid, commit_task=commit.task_id
        )
        commit >> close.as_teardown()

    emitted = EmitOperator(task_id="emit", topology=topology).output
    settle = SettleOperator(task_id="settle", topology=topology, txids=emitted).as_teardown(
        on_failure_fail_dagrun=True
    )
    transaction.expand(txid=emitted) >> settle
    for function in unanchored:
        unanchored_task(topology, settle.output, function)


def _params() -> dict[str, Param]:
    """Return the parameters of a triggered run, or of a backfill's conf."""
    return {
        DRY_RUN: Param(
            False,
            type="boolean",
            description="Only report what a replay would change, in the task's log and the ledger.",
        ),
        REFREEZE: Param(
            False,
            type="boolean",
            description="The source was replaced on purpose: freeze it again and replay.",
        ),
        REPLAY: Param(
            "",
            type=_TEXT,
            description="Replay exactly these committed txids, such as 5..6 or 3,7..9, and emit "
            "nothing. Leave the logical date empty.",
        ),
        REASON: Param(
            "", type=_TEXT, description="Why; the ledger keeps it with each request of the run."
        ),
    }


def _documentation(topology: Topology) -> str:
    states = "\n".join(
        f"| `{'.'.join(state.target)}` | {', '.join(state.key) or 'one row'} "
        f"| {', '.join(state.values)} |"
        for state in topology.states
    )
    return (
        f"**{topology.name}** commits each batch exactly once, in order, into all its states.\n\n"
        f"| table | key | values |\n|---|---|---|\n{states}\n\n"
        f"At most {topology.max_spout_pending} txids are between begin and commit. A backfill, "
        "a clear, or a run whose parameter `replay` names txids, replays: the same txids, and each "
        "batch's contribution is replaced."
    )
