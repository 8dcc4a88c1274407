"""The schedule of a topology's DAG, as a run of it records it: which intervals should exist."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from reliability.core.statement_key import StatementKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(StatementKey):
    """When Airflow makes runs of a DAG; exactly one of cron, period and not_evaluated is given.

    :param cron: a cron expression, whose ticks in `time_zone` are the ends of intervals
    :param period: the length of every interval, from `first_start` on
    :param not_evaluated: why the intervals cannot be computed without Airflow
    :param first_start: no interval starts earlier; None: from the first that was emitted
    :param last_start: no interval starts later
    :param catchup: Airflow makes the runs of the past as well
    :param interval_zone: the time zone in which the intervals are written; None: UTC
    """

    cron: str | None = None
    time_zone: str | None = None
    period: timedelta | None = None
    not_evaluated: str | None = None
    first_start: datetime | None = None
    last_start: datetime | None = None
    catchup: bool = True
    interval_zone: str | None = None
