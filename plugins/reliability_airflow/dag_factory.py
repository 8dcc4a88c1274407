"""A topology as a DAG: emit, a task group per txid with a task per step, settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from reliability.core.definitions import Topology
from reliability.core.errors import InvalidDefinition
from reliability.core.names import COMMAND_LINE
from reliability_airflow.context import DRY_RUN, INTERVAL, REASON, REFREEZE, REPLAY
from reliability_airflow.groups import RETRIES, build_tasks, has_room, task_options, tell
from reliability_airflow.releases import latest_version
from reliability_airflow.schedule import active_runs_limit, notices_of, timetable_of
from reliability_airflow.waiting import connections_as_arguments

if TYPE_CHECKING:
    from airflow.sdk import Asset

#: More than the window, because runs that wait behind a blocked txid are active too.
ACTIVE_RUNS = 16
#: Airflow's dialog makes null of a field that a person has emptied.
_TEXT = ["string", "null"]
DEFAULT_ARGS: dict[str, Any] = {"owner": "reliability", **RETRIES}


def topology_dag(
    topology: Topology,
    *,
    dag_id: str | None = None,
    schedule: object,
    start_date: datetime,
    end_date: datetime | None = None,
    catchup: bool = True,
    max_active_runs: int | None = None,
    conn_id: str | None = None,
    conf: dict[str, str] | None = None,
    spark_args: dict[str, Any] | None = None,
    pool: str | None = None,
    queue: str | None = None,
    executor_config: dict[str, Any] | None = None,
    default_args: dict[str, Any] | None = None,
    outlets: Sequence[Asset] = (),
    unanchored: Sequence[Callable[[str, int], None]] = (),
    ledger_conn_id: str | None = None,
    database_conn_ids: Mapping[str, str] | None = None,
    **dag_arguments: Any,
) -> DAG:
    """Make a DAG of a topology alone; `topology_group` makes its tasks a part of any DAG.

    :param dag_id: by default the topology's name. Several DAGs may emit one topology
    :param schedule: what Airflow takes: a cron expression or preset such as `@daily`, a timedelta,
        `@continuous`, `@once`, assets, a timetable, or None for runs that are triggered. A cron
        expression and a timedelta give every run the data interval between two ticks
    :param start_date: a cron expression is in its time zone; in Airflow's default one without one
    :param max_active_runs: how many runs work or wait at a time, at least 2; by default 16, or
        max_spout_pending if that is more. With 1, a failed run that is cleared would queue behind a
        later run that waits for it; `@continuous` has 1, and a later run takes over what is left
    :param conn_id: the Airflow connection to Spark; by default `spark_default`
    :param conf: Spark configuration for this topology's jobs; no secrets, because ps shows it
    :param spark_args: what is a property of Spark and a parameter of SparkSubmitOperator, such as
        `executor_memory` and `py_files`; before those in `default_args`
    :param pool: of the steps' tasks alone: what limits them must not keep commits waiting
    :param queue, executor_config: of the tasks that may start a driver, the steps' and the commit's
    :param default_args: override owner, retries, retry_delay and the like; also callbacks of tasks,
        and `conn_id`, `conf` and what `spark_args` has, where these do not say it
    :param outlets: assets that a run updates when it has committed something; each state has an
        asset of its own besides (`state_asset`)
    :param unanchored: side work for each txid that a successful run has committed, such as a metric
        or a notification: functions of (topology, txid), one task each. Not part of the
        transaction's tree: their errors are logged and fail neither the txid nor the run
    :param ledger_conn_id: the Airflow connection to the ledger; by default the environment, a
        service file or Airflow's configuration says where it is
    :param database_conn_ids: the same for the databases that states and spouts name
    :param dag_arguments: other arguments of DAG, such as `tags`, `params` and callbacks of runs
    """
    if dag_id == COMMAND_LINE or (not dag_id and topology.name == COMMAND_LINE):
        raise InvalidDefinition(
            f"topology {topology.name}: its DAG cannot be called {COMMAND_LINE}, as the ledger "
            "calls what the command line asks for",
            remedy="pass dag_id=.",
        )
    timetable = timetable_of(schedule, start_date)
    active_runs = max_active_runs or (
        active_runs_limit(timetable) or max(ACTIVE_RUNS, topology.max_spout_pending)
    )
    if not has_room(timetable, active_runs):
        raise InvalidDefinition(f"topology {topology.name}: max_active_runs must be at least 2")
    given_doc = dag_arguments.pop("doc_md", None)
    with DAG(
        dag_id=dag_id or topology.name,
        schedule=timetable,
        start_date=start_date,
        end_date=end_date,
        catchup=catchup and schedule is not None,
        max_active_runs=active_runs,
        default_args=DEFAULT_ARGS
        | connections_as_arguments(ledger_conn_id, database_conn_ids)
        | (default_args or {}),
        tags={"reliability", *dag_arguments.pop("tags", ())},
        params=_params(topology) | dag_arguments.pop("params", {}),
        # A replay must run the corrected code, not the run's original code.
        **latest_version(dag_arguments.pop("rerun_with_latest_version", None)),
        **dag_arguments,
    ) as dag:
        notices = notices_of(topology, dag)
        dag.doc_md = given_doc or "\n\n".join([_documentation(topology), *notices])
        tell(notices, dag.dag_id, is_timed=topology.spout.timed)
        options = task_options(
            default_args,
            conn_id=conn_id,
            conf=conf,
            spark_args=spark_args,
            pool=pool,
            queue=queue,
            executor_config=executor_config,
            outlets=outlets,
            unanchored=unanchored,
        )
        build_tasks(topology, options, default_args=default_args or {})
    if not dag.has_task("emit"):
        raise InvalidDefinition(
            f"topology {topology.name}: topology_dag is called inside a task group",
            remedy="call it outside: it makes a DAG of its own.",
        )
    return dag


def _params(topology: Topology) -> dict[str, Param]:
    """Return the parameters of a triggered run, or of a backfill's conf."""
    interval = Param(
        "",
        type=_TEXT,
        description="The interval to read, such as 2026-01-31, in the time zone of the spout's "
        "dates. Not for a run that the schedule or a backfill makes: it has one.",
    )
    return {
        **({INTERVAL: interval} if topology.spout.timed else {}),
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
        f"| `{'.'.join(state.target)}` "
        f"| {', '.join(state.key) or ('none' if state.is_append else 'one row')} "
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
