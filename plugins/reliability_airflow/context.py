"""What the tasks read from Airflow's context, and how errors are mapped to Airflow's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

from reliability.core.errors import InvalidDefinition, LogicalDateTaken, ReliabilityError, Terminal
from reliability.core.periods import UTC, ClockChange
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.core.texts import as_json
from reliability.core.txids import format_txids, parse_txids, with_noun
from reliability_airflow.releases import AirflowFailException
from reliability_airflow.schedule import has_ticks, may_be_scheduled

DRY_RUN = "dry_run"
REFREEZE = "refreeze"
REPLAY = "replay"
REASON = "reason"
INTERVAL = "interval"
WAIT_TIMEOUT = timedelta(days=7)
FAILED = ("failed", "upstream_failed")
_ENDED = (*FAILED, "success", "skipped", "removed")
_REPLAY_ELSEWHERE = (
    "trigger the replay without a logical date. Delete this run if it was triggered; if the "
    "schedule or a backfill has made it, backfill its date with --reprocess-behavior completed "
    f'--dag-run-conf \'{{"{REPLAY}": ""}}\'.'
)

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from reliability.core.spout import Spout
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
        reason=_text_of(REASON, context),
    )


def is_asked_for(what: str, context: Mapping[str, Any]) -> bool:
    """Say whether the run asks for DRY_RUN or REFREEZE.

    :raises InvalidDefinition: the value in conf is not a boolean
    """
    asked = _said(what, context, False)
    if not isinstance(asked, bool):
        raise _refused(what, asked, context, "must be true or false")
    return asked


def txids_to_replay(context: Mapping[str, Any]) -> list[int] | None:
    """Return the txids that the run names, ascending; None if it names none, and so emits.

    :raises InvalidDefinition: what it says names no txids, or it names an interval too
    """
    asked = _text_of(REPLAY, context)
    if not asked:
        return None
    if interval := _text_of(INTERVAL, context):
        raise _refused(INTERVAL, interval, context, f"must be empty if {REPLAY} names txids")
    try:
        return parse_txids(asked)
    except ValueError as error:
        rule = f"must be txids such as 5, 5..6 or 3,7..9 ({error}), or empty"
        raise _refused(REPLAY, asked, context, rule) from error


def _text_of(what: str, context: Mapping[str, Any]) -> str:
    asked = _said(what, context, "")
    if asked is None:  # a field of Airflow's dialog that was emptied
        return ""
    if not isinstance(asked, str):
        raise _refused(what, asked, context, "must be a text")
    return asked


def _said(what: str, context: Mapping[str, Any], default: object) -> Any:
    """Return what the run says: by its conf, otherwise by the DAG's params.

    Airflow ignores a run's conf in its params if core.dag_run_conf_overrides_params is off; then a
    run that was meant as a dry run would change the tables.

    :raises InvalidDefinition: the DAG has other tasks too, and does not say whom it means
    """
    conf = context["dag_run"].conf or {}
    if not (scope := _scope_of(context)):
        return conf.get(what, context["params"].get(what, default))
    if what in conf and what not in context["ti"].task.dag.params:
        said = as_json({scope: {what: conf[what]}})
        raise _refused(what, conf[what], context, f"must name whom it means: {said}")
    own = conf.get(scope) or {}
    if not isinstance(own, Mapping):
        raise _refused(scope, own, context, f'must be an object, such as {{"{REPLAY}": "5..6"}}')
    return own.get(what, default)


def _scope_of(context: Mapping[str, Any]) -> str:
    """Return the key under which a run's conf has what is meant for the task's group."""
    return str(getattr(context["ti"].task, "scope", ""))


def _scoped(context: Mapping[str, Any], conf: Mapping[str, Any]) -> str:
    """Return a conf for another run, as JSON."""
    scope = _scope_of(context)
    return as_json({scope: conf} if scope else conf)


def is_left_out(context: Mapping[str, Any]) -> bool:
    """Say whether the run is a replay or a dry run of other groups of its DAG only."""
    conf, own = context["dag_run"].conf or {}, _scope_of(context)
    if own in conf:
        return False
    scopes = {getattr(task, "scope", "") for task in context["ti"].task.dag.tasks} - {own, ""}
    others = [conf[scope] for scope in scopes if isinstance(conf.get(scope), Mapping)]
    return any(other.get(what) for other in others for what in (REPLAY, DRY_RUN, REFREEZE))


def _refused(what: str, value: object, context: Mapping[str, Any], rule: str) -> InvalidDefinition:
    return InvalidDefinition(
        f"conf of run {context['dag_run'].run_id}: {what} is {value!r}",
        remedy=f"delete this run, and trigger another; {what} {rule}.",
    )


def dry_run_notice(context: Mapping[str, Any]) -> str:
    """Say that a run changes no table, and how to make it a real one.

    Airflow keeps a run's conf: a clear, or a backfill without a conf, would be another dry run.
    """
    dag_run = context["dag_run"]
    begins = f"THIS IS A DRY RUN: run {dag_run.run_id} changes no table, and a clear of it"
    trigger = f"airflow dags trigger {dag_run.dag_id} --conf"
    asked = {REASON: _text_of(REASON, context), REFREEZE: is_asked_for(REFREEZE, context)}
    kept = {name: value for name, value in asked.items() if value}
    if (txids := txids_to_replay(context)) is not None:
        replayed = format_txids(txids)
        own = shlex.quote(_scoped(context, {REPLAY: replayed, **kept}))
        return f"{begins} is another dry run. To replay {with_noun(replayed)}: {trigger} {own}"
    if named := _text_of(INTERVAL, context):
        own = shlex.quote(_scoped(context, {INTERVAL: named, **kept}))
        return f"{begins} is another dry run. To change the tables: {trigger} {own}"
    date = dag_run.logical_date
    day = date and f"{date.astimezone(timezone.utc):%Y-%m-%dT%H:%M}+00:00"
    dates = f" --from-date {day} --to-date {day}" if day else ""
    own = shlex.quote(_scoped(context, {DRY_RUN: False, **kept}))
    return (
        f"{begins}, or a backfill without a conf, is another dry run. To change the tables: "
        f"airflow backfill create --dag-id {dag_run.dag_id}{dates} --reprocess-behavior completed "
        f"--dag-run-conf {own}"
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
        is_new=ti.try_number == 1,
    )


def interval_of(context: Mapping[str, Any]) -> Interval | None:
    """Return the run's data interval; a manual run without a logical date has none.

    :raises LogicalDateTaken: the run would prevent Airflow from creating a scheduled one
    """
    dag_run = context["dag_run"]
    if dag_run.data_interval_start is None or dag_run.data_interval_end is None:
        return None
    interval = Interval(dag_run.data_interval_start, dag_run.data_interval_end)
    dag = context["ti"].task.dag
    if has_ticks(dag.timetable):
        _check_place(dag, dag_run, interval, txids_to_replay(context))
    return interval


def interval_to_read(context: Mapping[str, Any], spout: Spout) -> Interval | None:
    """Return the interval that a run reads: the one that it names, otherwise its data interval.

    The extra of an asset event, or a partition key, may name it as well as the run's conf.

    :raises InvalidDefinition: it names none that can be read, or several, or another one than that
        of the schedule
    """
    own = interval_of(context)
    if not spout.timed:
        return own
    own = own if own and own.start < own.end else None  # a moment is none
    named = named_interval(context, spout.time_zone or UTC)
    dag_run = context["dag_run"]
    if named and own and named != own and own.start == dag_run.logical_date:
        raise InvalidDefinition(
            f"run {dag_run.run_id} names the interval {named}, and has another one by its logical "
            f"date, {own}",
            remedy="delete this run. For the interval that it names, trigger one without a logical "
            "date; for its own, backfill its date without that conf.",
        )
    return named or own


def named_interval(context: Mapping[str, Any], zone: str) -> Interval | None:
    """Return the interval that a run names; None if it names none.

    :param zone: the time zone of one that names none
    :raises InvalidDefinition: it names several, or one that is not clear
    """
    if asked := _text_of(INTERVAL, context):
        return _parsed(asked, zone, context)
    by_asset = (context.get("triggering_asset_events") or {}).values()
    texts = [e.extra[INTERVAL] for events in by_asset for e in events if INTERVAL in e.extra]
    intervals = {_parsed(text, zone, context) for text in texts}
    if len(intervals) > 1:
        names = ", ".join(str(each) for each in sorted(intervals, key=lambda i: i.start))
        dag_run = context["dag_run"]
        conf = _scoped(context, {INTERVAL: "…"})
        raise InvalidDefinition(
            f"the asset events of run {dag_run.run_id} name several intervals: {names}",
            remedy="Airflow has joined their events in this run. Trigger a run for each: "
            f"airflow dags trigger {dag_run.dag_id} --conf {shlex.quote(conf)}",
        )
    if intervals:
        return intervals.pop()
    key = getattr(context["dag_run"], "partition_key", None)
    try:
        by_key = Interval.parse(key or "", zone)
    except ClockChange as error:
        raise InvalidDefinition(
            f"the partition key of run {context['dag_run'].run_id}: {error}",
            remedy='give the timetable timezone="UTC" and key_format="%Y-%m-%dT%HZ". Instead of '
            f"this run trigger one for each hour, with conf {_scoped(context, {INTERVAL: '…'})}.",
        ) from error
    except ValueError:
        return None
    return by_key if by_key.start < by_key.end else None


def _parsed(text: object, zone: str, context: Mapping[str, Any]) -> Interval:
    rule = "must be an interval, such as 2026-01-31 or START/END"
    try:
        interval = Interval.parse(str(text), zone)
    except ValueError as error:
        raise _refused(INTERVAL, text, context, f"{rule} ({error})") from error
    if interval.start == interval.end:
        raise _refused(INTERVAL, text, context, rule)
    return interval


def _check_place(dag: DAG, dag_run: Any, interval: Interval, replayed: list[int] | None) -> None:
    # A logical date belongs to one run. If a manual run has an interval's date, the scheduler skips
    # the interval for ever, and all later ones if that run reads the interval before.
    logical_date = dag_run.logical_date
    if interval.start == interval.end:
        return  # no schedule
    if interval.end == logical_date and not may_be_scheduled(dag, logical_date):
        return
    remedy = ""
    if replayed is not None and logical_date in (interval.start, interval.end):
        what = f"only replays {with_noun(format_txids(replayed))}"
        remedy = _REPLAY_ELSEWHERE
    elif interval.end == logical_date:
        what = f"reads the interval before it, {interval}"
    elif interval.start == logical_date and interval.end > dag_run.run_after:
        what = f"reads {interval} before it is over"
    else:
        return
    raise LogicalDateTaken(
        f"run {dag_run.run_id} has the logical date {logical_date:%Y-%m-%dT%H:%M}, which the "
        f"scheduled run of that date needs, but {what}",
        remedy=remedy,
    )


def task_states(
    dag_id: str, run_id: str, task_id: str, map_index: int | None = None
) -> Mapping[str, str | None]:
    """Ask Airflow for the states of a task of a run, of all its instances or of one.

    :returns: by the task's id, and if it is mapped its index: `transaction.commit_0`
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    by_run: Mapping[str, Mapping[str, str | None]] = RuntimeTaskInstance.get_task_states(
        dag_id=dag_id, run_ids=[run_id], task_ids=[task_id], map_index=map_index
    )
    return by_run.get(run_id, {})


def has_task_ended(dag_id: str, run_id: str, task_id: str, map_index: int) -> bool:
    """Say whether a task has ended, or can no longer come.

    Of a mapped one, Airflow creates an instance that a clear adds when another instance becomes
    ready. Once all of these have ended, it never comes: if every upstream task fails, for example.
    """
    task = (dag_id, run_id, task_id)
    states = task_states(*task, map_index) or task_states(*task)
    return all(state in _ENDED for state in states.values())


@contextmanager
def mapped_errors(topology: str = "", txid: int | None = None) -> Iterator[None]:
    """Let Airflow retry transient errors and fail at once on terminal ones.

    They are about the topology and the txid.
    """
    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error.about(topology=topology, txid=txid))) from error
    except ReliabilityError as error:
        error.about(topology=topology, txid=txid)
        raise
