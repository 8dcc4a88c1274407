"""What the tasks read from Airflow's context, and how errors are mapped to Airflow's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from reliability.core.errors import (
    InvalidDefinition,
    LogicalDateTaken,
    ReliabilityError,
    Terminal,
)
from reliability.core.request import TaskTry
from reliability.core.spout import Interval

DRY_RUN = "dry_run"
REFREEZE = "refreeze"
WAIT_TIMEOUT = timedelta(days=7)

if TYPE_CHECKING:
    from reliability.transaction.emit.requests import Run, TaskContact


def run_of(context: Mapping[str, Any]) -> Run:
    """Return the run that the task belongs to."""
    from reliability.transaction.emit.requests import Run

    dag_run = context["dag_run"]
    return Run(dag_id=dag_run.dag_id, run_id=dag_run.run_id)


def contact_of(context: Mapping[str, Any]) -> TaskContact:
    """Return the task, its run and its current try."""
    from reliability.transaction.emit.requests import TaskContact

    return TaskContact(
        run=run_of(context),
        task=context["ti"].task_id,
        this_try=try_of(context),
        is_dry_run=is_asked_for(DRY_RUN, context),
        later_tasks=frozenset(context["ti"].task.get_flat_relative_ids(upstream=False)),
    )


def is_asked_for(what: str, context: Mapping[str, Any]) -> bool:
    """Say whether the run asks for DRY_RUN or REFREEZE: by its conf, otherwise by the DAG's params.

    Airflow ignores a run's conf in its params if core.dag_run_conf_overrides_params is off; then a
    run that was meant as a dry run would change the tables.

    :raises InvalidDefinition: the value in conf is not a boolean
    """
    asked = (context["dag_run"].conf or {}).get(what, context["params"].get(what, False))
    if not isinstance(asked, bool):
        raise InvalidDefinition(
            f"conf of run {context['dag_run'].run_id}: {what} is {asked!r}",
            remedy=f"trigger another run; {what} must be true or false.",
        )
    return asked


def dry_run_notice(context: Mapping[str, Any]) -> str:
    """Say that a run changes no table, and how to make it a real one.

    Airflow keeps a run's conf: a clear, or a backfill without a conf, would be another dry run.
    """
    dag_run = context["dag_run"]
    date = dag_run.logical_date
    dates = f" --from-date {date:%Y-%m-%dT%H:%M} --to-date {date:%Y-%m-%dT%H:%M}" if date else ""
    return (
        f"THIS IS A DRY RUN: run {dag_run.run_id} changes no table, and a clear of it, or a "
        "backfill without a conf, is another dry run. To change the tables: airflow backfill "
        f"create --dag-id {dag_run.dag_id}{dates} --reprocess-behavior completed "
        f"--dag-run-conf '{{\"{DRY_RUN}\": false}}'"
    )


def try_of(context: Mapping[str, Any]) -> TaskTry:
    """Return what distinguishes a clear from a retry; no part of it is enough alone."""
    ti, dag_run = context["ti"], context["dag_run"]
    started = dag_run.start_date
    return TaskTry(
        max_tries=ti.max_tries,
        try_id=str(ti.id),
        clear_number=dag_run.clear_number or 0,
        run_started=started.astimezone(timezone.utc).isoformat() if started else "",
        # as Airflow counts reschedules; a clear keeps the number of tries so far
        is_first=ti.try_number == ti.max_tries - (ti.task.retries or 0) + 1,
    )


def interval_of(context: Mapping[str, Any]) -> Interval | None:
    """Return the run's data interval; a manual run without a logical date has none.

    :raises LogicalDateTaken: the run would prevent Airflow from creating a scheduled one
    """
    dag_run = context["dag_run"]
    if dag_run.data_interval_start is None or dag_run.data_interval_end is None:
        return None
    interval = Interval(dag_run.data_interval_start, dag_run.data_interval_end)
    _check_place(dag_run, interval)
    return interval


def _check_place(dag_run: Any, interval: Interval) -> None:
    # A logical date belongs to one run. If a manual run has an interval's date, the scheduler skips
    # the interval for ever, and all later ones if that run reads the interval before.
    logical_date = dag_run.logical_date
    if interval.start == interval.end:
        return  # no schedule
    if interval.end == logical_date:
        what = f"the interval before it, {interval}"
    elif interval.start == logical_date and interval.end > dag_run.run_after:
        what = f"{interval} before it is over"
    else:
        return
    raise LogicalDateTaken(
        f"run {dag_run.run_id} has the logical date {logical_date:%Y-%m-%dT%H:%M}, which the "
        f"scheduled run of that date needs, but reads {what}"
    )


@contextmanager
def mapped_errors(**names: object) -> Iterator[None]:
    """Let Airflow retry transient errors and fail at once on terminal ones.

    :param names: what the remedies of errors name: `topology`, `txid`
    """
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error.fill_in(**names))) from error
    except ReliabilityError as error:
        error.fill_in(**names)
        raise
