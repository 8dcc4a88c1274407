"""The tasks of a topology: of a DAG of its own, or a task group in any DAG.

emit, a mapped task group with a task per step, commit and close for each txid, and settle.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup, task_group

from reliability.core.definitions import Topology
from reliability.core.errors import InvalidDefinition
from reliability.core.graph import reads_from
from reliability.deployment import topologies
from reliability_airflow.assets import alias_of
from reliability_airflow.operators import TransactionOperator
from reliability_airflow.releases import AirflowException, TriggerRule
from reliability_airflow.schedule import active_runs_limit, notices_of
from reliability_airflow.spark_connection import NOT_PROPERTIES, PROPERTIES
from reliability_airflow.tasks import (
    CloseOperator,
    CommittedOperator,
    EmitOperator,
    SettleOperator,
    unanchored_task,
)
from reliability_airflow.waiting import connections_as_arguments

if TYPE_CHECKING:
    from airflow.sdk import DAG, Asset

logger = logging.getLogger(__name__)

MIN_ACTIVE_RUNS = 2
#: What each task has, unless the DAG, its group or the caller says otherwise.
RETRIES: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=5)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How the tasks of a topology are made; `topology_dag` explains the fields."""

    conn_id: str = "spark_default"
    conf: Mapping[str, Any] = field(default_factory=dict)
    spark_args: Mapping[str, Any] = field(default_factory=dict)
    pool: str | None = None
    queue: str | None = None
    executor_config: Mapping[str, Any] | None = None
    outlets: Sequence[Asset] = ()
    unanchored: Sequence[Callable[[str, int], None]] = ()

    def properties(self, topology: Topology, default_args: Mapping[str, Any]) -> dict[str, Any]:
        """Return Spark's properties.

        :raises InvalidDefinition: `spark_args`, or a parameter of SparkSubmitOperator in
            `default_args`, would have no effect
        """
        lost = [name for name in NOT_PROPERTIES if default_args.get(name) is not None]
        lost += [name for name in self.spark_args if name not in PROPERTIES]
        if lost:
            raise InvalidDefinition(
                f"topology {topology.name}: {' and '.join(lost)} would have no effect",
                remedy="leave it out; give properties by conf=, or in spark-defaults.conf.",
            )
        given = {**default_args, **self.spark_args}
        named = {PROPERTIES[n]: v for n, v in given.items() if n in PROPERTIES and v is not None}
        return {**self.conf, **named}

    def of_spark(self) -> dict[str, Any]:
        """Return the arguments of the tasks that may start a driver."""
        given = {"queue": self.queue, "executor_config": self.executor_config}
        return {name: value for name, value in given.items() if value is not None}


def task_options(default_args: Mapping[str, Any] | None, **given: Any) -> TaskOptions:
    """Return the options as given; of Spark, else as a topology's own default_args say.

    Those of a DAG with other tasks say nothing: their `conn_id` may be of a database.
    """
    own = [(name, (default_args or {}).get(name)) for name in ("conn_id", "conf")]
    return TaskOptions(**{name: v for name, v in (*own, *given.items()) if v is not None})


def topology_group(
    topology: Topology,
    *,
    group_id: str | None = None,
    default_args: Mapping[str, Any] | None = None,
    ledger_conn_id: str | None = None,
    database_conn_ids: Mapping[str, str] | None = None,
    **options: Any,
) -> TaskGroup:
    """Make a topology's tasks as a task group of the DAG at hand: `extract >> group >> report`.

    Tasks behind the group start when all that its run asked for has committed, or there was nothing
    to emit. They fail with it (`upstream_failed`), and are skipped with it: if what is before the
    group is skipped, or the run is a dry run. The task `committed` returns the txids.

    :param group_id: by default the topology's name
    :param default_args: for the group's tasks; beyond them they have those of the DAG, except
        `conn_id` and `conf`, which are of other tasks, too
    :param ledger_conn_id: as for `topology_dag`
    :param database_conn_ids: the same
    :param options: of `topology_dag`: `conn_id`, `conf`, `spark_args`, `pool`, `queue`,
        `executor_config`, `outlets`, `unanchored`
    :raises InvalidDefinition: the DAG cannot run this topology
    """
    try:
        group = TaskGroup(group_id or re.sub(r"[^\w-]", "_", topology.name))
    except AirflowException as error:
        raise InvalidDefinition(
            f"topology {topology.name} can have no group of this name here: {error}",
            remedy="pass group_id=; if another topology has its name, give one of them another.",
        ) from error
    group.default_args = {
        **RETRIES,
        **group.dag.default_args,
        **group.default_args,  # of the groups around it
        **connections_as_arguments(ledger_conn_id, database_conn_ids),
        **(default_args or {}),
    }
    _check_place(topology, group)
    with group:
        build_tasks(
            topology,
            task_options(default_args, **options),
            default_args=group.default_args,
            scope=topology.name,
        )
    return group


def has_room(timetable: Any, max_active_runs: int) -> bool:
    """Say whether a run that is cleared can work beside a later one that waits for it.

    Where the schedule allows one run at a time, a later one takes over what it has left.
    """
    least = min(active_runs_limit(timetable) or MIN_ACTIVE_RUNS, MIN_ACTIVE_RUNS)
    return not 0 < max_active_runs < least


def tell(notices: Sequence[str], dag_id: str, *, is_timed: bool) -> None:
    """Log what a person should know of a DAG's schedule; a spout without intervals needs none."""
    for notice in notices:
        logger.log(logging.WARNING if is_timed else logging.INFO, "DAG %s: %s", dag_id, notice)


def _check_place(topology: Topology, group: TaskGroup) -> None:
    dag: DAG = group.dag
    if next(group.iter_mapped_task_groups(), None) is not None:
        raise InvalidDefinition(
            f"topology {topology.name}: its group is inside a mapped task group",
            remedy="call topology_group outside: a run emits once, and maps its own txids.",
        )
    if any(isinstance(t, EmitOperator) and t.topology.name == topology.name for t in dag.tasks):
        raise InvalidDefinition(
            f"DAG {dag.dag_id} has two groups of topology {topology.name}",
            remedy="make one: a run of a DAG asks for a topology's txids once.",
        )
    if not has_room(dag.timetable, dag.max_active_runs):
        raise InvalidDefinition(
            f"DAG {dag.dag_id} with topology {topology.name}: max_active_runs must be at least 2",
            remedy="raise it: with 1, a failed run that is cleared would queue behind a later run "
            "that waits for it.",
        )
    tell(notices_of(topology, dag), dag.dag_id, is_timed=topology.spout.timed)


def build_tasks(
    topology: Topology,
    options: TaskOptions,
    *,
    default_args: Mapping[str, Any],
    scope: str = "",
) -> None:
    """Make the tasks of a topology in the DAG and the task group at hand.

    :param default_args: those of the tasks, for Spark's properties among them
    :param scope: where in a run's conf stands what is meant for them; empty for a DAG of their own,
        which also has no task `committed`: nothing is behind it
    """
    topologies.check_found(topology)
    conf = options.properties(topology, default_args)
    common: dict[str, Any] = {"topology": topology, "scope": scope}

    @task_group(group_id="transaction")
    def transaction(txid: int) -> None:
        def task_for(task_id: str, step: str | None, **arguments: Any) -> TransactionOperator:
            return TransactionOperator(
                task_id=task_id,
                txid=txid,
                step=step,
                conn_id=options.conn_id,
                conf=conf,
                **options.of_spark(),
                **arguments,
                **common,
            )

        # Absolute weights: by default processing would outweigh commit, and commits starve.
        commit = task_for("commit", None, priority_weight=100, outlets=[alias_of(topology)])
        pool = {"pool": options.pool} if options.pool else {}
        steps = {
            s.name: task_for(s.name, s.name, priority_weight=1, **pool) for s in topology.steps
        }
        upstream = reads_from(topology.steps)
        for name, task in steps.items():
            [steps[read] for read in upstream[name]] >> task
            task >> commit
        close = CloseOperator(task_id="close", txid=txid, commit_task=commit.task_id, **common)
        commit >> close.as_teardown()

    emit = EmitOperator(task_id="emit", **common)
    transactions = transaction.expand(txid=emit.output)
    commit_task = f"{transactions.node_id}.commit"
    txids = {
        "txids": emit.output,
        "emit_task": emit.task_id,
        "commit_task": commit_task,
        **common,
    }
    settle = SettleOperator(
        task_id="settle",
        assets=options.outlets,
        outlets=[alias_of(topology)] if options.outlets else [],
        **txids,
    ).as_teardown(on_failure_fail_dagrun=True)
    transactions >> settle
    if scope:
        # The ledger says what is done, also of a commit that Airflow has lost, or has stopped.
        # With fail_fast Airflow takes only another rule, which means the same without setup tasks.
        is_fast = emit.dag.fail_fast
        rule = TriggerRule.ALL_DONE_SETUP_SUCCESS if is_fast else TriggerRule.ALL_DONE
        committed = CommittedOperator(task_id="committed", trigger_rule=rule, **txids)
        transactions >> committed >> settle
    for function in options.unanchored:
        unanchored_task(topology, settle.output, function)
