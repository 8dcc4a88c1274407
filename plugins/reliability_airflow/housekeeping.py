"""The housekeeping DAG: every minute, for every topology, finish the work of dead processes.

It also reports runs that Airflow shows as success although the ledger disagrees.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG

from reliability.core.errors import SuccessNotDone
from reliability.core.txids import format_ranges, with_noun
from reliability.deployment.address import DriverAddresses
from reliability.deployment.airflow_connections import configured_databases
from reliability_airflow.alerts import AlertOperator, Channel, VerifyOperator
from reliability_airflow.releases import AirflowException, DagRunState
from reliability_airflow.stats import tell_gauges
from reliability_airflow.waiting import WaitingOperator, connections_as_arguments

if TYPE_CHECKING:
    from airflow.sdk import Context

    from reliability.ledger.connection import Row


def housekeeping_dag(
    *,
    alerts: Sequence[Channel] = (),
    lag_over: timedelta | None = timedelta(hours=1),
    dag_id: str = "reliability_housekeeping",
    ledger_conn_id: str | None = None,
    database_conn_ids: Mapping[str, str] | None = None,
) -> DAG:
    """Make the DAG that keeps house in a ledger.

    :param alerts: whom to tell when something begins that a person should act on, and when it is
        over: notifiers of airflow.sdk or of a provider, whose templates have `alert`, or functions
        of a `reliability.core.alert.Alert`
    :param lag_over: tell when an interval has lacked a commit for longer; None for never
    :param dag_id: one for each ledger
    :param ledger_conn_id: as for topology_dag
    :param database_conn_ids: as for topology_dag, of all topologies of the ledger
    """
    with DAG(
        dag_id=dag_id,
        schedule=timedelta(minutes=1),
        start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        max_active_runs=1,
        default_args={
            "owner": "reliability",
            "retries": 1,
            "retry_delay": timedelta(seconds=30),
            # With one active run, a sweep that hangs would prevent all later ones.
            "execution_timeout": timedelta(minutes=10),
            **connections_as_arguments(ledger_conn_id, database_conn_ids),
        },
        tags={"reliability"},
        doc_md=(
            "Runs `reliability sweep`: fences attempts past their lease, gives up requests of runs "
            "that are gone, commits what is overdue, deletes staged rows that can never count. A "
            "convenience: every task of a topology also sweeps its own topology.\n\n"
            "`reconcile` fails while Airflow shows success for a run that is not done: it "
            "was marked by hand, or rolled back and released. Its log names the runs and what to "
            "do.\n\n"
            "`alert`, if `alerts=` is given, tells people what begins and what is over."
        ),
    ) as dag:
        SweepOperator(task_id="sweep")
        ReconcileOperator(task_id="reconcile")
        if alerts:  # beside the sweep, which must not wait for a mail server
            AlertOperator(task_id="alert", channels=alerts, lag_over=lag_over)
    return dag


def verification_dag(
    every: timedelta = timedelta(days=1),
    *,
    dag_id: str = "reliability_verification",
    ledger_conn_id: str | None = None,
    database_conn_ids: Mapping[str, str] | None = None,
) -> DAG:
    """Make the DAG that verifies a ledger's tables.

    It compares every row of every table with its contributions, which may take long; so it is not
    a task of the housekeeping, which tells what it has found. The other parameters are
    those of `housekeeping_dag`.
    """
    with DAG(
        dag_id=dag_id,
        schedule=every,
        start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        max_active_runs=1,
        default_args={
            "owner": "reliability",
            "retries": 1,
            **connections_as_arguments(ledger_conn_id, database_conn_ids),
        },
        tags={"reliability"},
        doc_md="Compares the tables with their contributions, as `reliability verify` does.",
    ) as dag:
        VerifyOperator(task_id="verify")
    return dag


class SweepOperator(WaitingOperator):
    """Run `reliability sweep` with this task's Python; PATH may have none, or another one."""

    @cached_property
    def _process(self) -> SubprocessHook:
        return SubprocessHook()

    def execute(self, context: Context) -> None:
        """Run it as a separate process that can be ended, with its output in the task's log."""
        with self.ledger("housekeeping", briefly=True) as connection:
            connection.close()  # it is opened again when the sweep has ended
            with TemporaryDirectory(prefix="reliability-") as folder:
                addresses = DriverAddresses(folder, configured_databases())
                ended = self._process.run_command(
                    [sys.executable, "-m", "reliability", "sweep"],
                    env={**os.environ, **addresses.variables},
                )
            if ended.exit_code:
                connection.all("gauges")  # raises what every session meets
                raise AirflowException(f"reliability sweep: exit code {ended.exit_code}, see above")
            tell_gauges(partial(connection.all, "gauges"))

    def on_kill(self) -> None:
        """End it with the task."""
        self._process.send_sigterm()  # type: ignore[no-untyped-call]


class ReconcileOperator(WaitingOperator):
    """Compare the runs that are not done in the ledger with their states in Airflow (G9)."""

    def execute(self, context: Context) -> None:
        """Fail if Airflow shows success for one; `reliability reconcile` checks all runs."""
        with self.ledger("housekeeping", briefly=True) as connection:
            runs = connection.all("runs_without_their_txids")
            marked = [run for run in runs if _is_success(context, run["dag_id"], run["run_id"])]
            if marked:
                raise _not_done(marked)


def _not_done(runs: Sequence[Row]) -> SuccessNotDone:
    what = "; ".join(
        f"run {run['run_id']} of {run['dag_id']}: {with_noun(format_ranges(run['txids']))}"
        for run in runs
    )
    names = sorted({run["topology"] for run in runs})
    if len(names) == 1:
        return SuccessNotDone(what, topology=names[0])
    return SuccessNotDone(f"{what} (topologies {', '.join(names)})")


def _is_success(context: Context, dag_id: str, run_id: str) -> bool:
    # Through the task's own connection to Airflow: it needs no token and no address.
    states: list[str] = [DagRunState.SUCCESS]
    return context["ti"].get_dr_count(dag_id=dag_id, run_ids=[run_id], states=states) > 0
