"""Find what a person should hear of, and record when each of it begins and ends.

The ledger knows who was told what: each channel is told once that something begins, and once that
it is over, however often it is looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from reliability.core.alert import Alert, AlertKind
from reliability.core.attempt import TransactionAttempt
from reliability.core.spout import Interval
from reliability.core.txids import format_ranges, with_noun
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.read_rows import blocked_of, made_of
from reliability.transaction.emit.expected import GRACE
from reliability.transaction.inspect.intervals import (
    IntervalReport,
    IntervalState,
    format_counts,
    intervals_without_commit,
)

logger = logging.getLogger(__name__)
Channel = Callable[[Alert], object]
MOST_OF_A_KIND = 20  # beyond them, one alert is for all the others
#: A person has done these, and knows.
ON_PURPOSE = frozenset({IntervalState.HELD, IntervalState.PARKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is so now.

    :param subject: what tells it from others of its kind
    :param since: None if it is not known
    """

    kind: AlertKind
    subject: str
    what: str
    advice: str
    command: str
    since: datetime | None = None


def record_conditions(
    connection: LedgerConnection, topology: str, lag_over: timedelta | None
) -> None:
    """Look at a topology, and record what begins and what has ended.

    :param lag_over: how long an interval may lack a commit; None for any time
    """
    with connection.transaction() as tx:
        tx.queue("hold_alerts")
        tx.one("lock_alerts")
        conditions = list(_conditions(tx, topology, lag_over))
        tx.run(
            "end_alerts",
            topology=topology,
            kinds=[condition.kind.value for condition in conditions],
            subjects=[condition.subject for condition in conditions],
        )
        for condition in conditions:
            tx.first(
                "begin_alert",
                topology=topology,
                **{**asdict(condition), "kind": condition.kind.value},
            )


def tell(connection: LedgerConnection, channels: Mapping[str, Channel]) -> int:
    """Tell each channel what it has not been told, and return how often one was.

    It is recorded before the call: who is told twice stops listening. If the call fails, it is
    tried again the next time; if this process dies in it, it is not.
    """
    with connection.transaction(reads_only=True) as tx:
        waiting = tx.all("alerts_to_tell", channels=list(channels))
    return sum(_tell(connection, channels[row["channel"]], row) for row in waiting)


def _tell(connection: LedgerConnection, channel: Channel, row: Row) -> bool:
    alert = made_of(Alert, row, kind=AlertKind(row["kind"]))
    claim = {"alert_id": row["alert_id"], "channel": row["channel"], "is_over": alert.is_over}
    if connection.first("claim_alert", **claim) is None:
        return False
    try:
        channel(alert)
    except Exception as error:
        logger.warning("%s was not told, and will be: %s: %r", row["channel"], alert, error)
        connection.run("unclaim_alert", **claim)
        return False
    return True


# --- what is so ----------------------------------------------------------------------------------


def _conditions(
    tx: DatabaseTransaction, topology: str, lag_over: timedelta | None
) -> Iterator[Condition]:
    yield from _blocked(tx, topology)
    if lag_over is not None:
        yield from _lagging(tx, topology, lag_over)
    yield from _expired(tx, topology)
    yield from _unsatisfied(tx, topology)
    yield from _changed_by_hand(tx, topology)


def _blocked(tx: DatabaseTransaction, topology: str) -> Iterator[Condition]:
    blocked = blocked_of(tx.first("blocked_txid", topology=topology, below=None))
    if blocked is not None:
        verb = "release" if blocked.is_held else "resume-runs"
        advice = blocked.error().about(topology=topology).what_to_do
        yield Condition(
            kind=AlertKind.BLOCKED,
            subject=str(blocked.txid),
            what=blocked.describe(),
            advice=advice[:1].upper() + advice[1:],
            command=f"reliability {verb} {topology}",
        )


def _lagging(tx: DatabaseTransaction, topology: str, limit: timedelta) -> Iterator[Condition]:
    lacking = intervals_without_commit(tx, topology, older_than=limit)
    late = [report for report in lacking.reports if report.state not in ON_PURPOSE]
    for subject, own in _by_subject(tx, topology, late, limit).items():
        counts = format_counts(replace(lacking, reports=tuple(own)).counts)
        first, last = own[0].interval, own[-1].interval
        named = first and last and replace(first, end=last.end)
        yield Condition(
            kind=AlertKind.LAG,
            subject=subject,
            what=f"for more than {limit}: {counts}{f' ({named})' if subject and named else ''}",
            advice="Each has its reason and a next step.",
            command=f"reliability lag {topology}",
            since=min((report.since for report in own if report.since), default=None),
        )


def _by_subject(
    tx: DatabaseTransaction, topology: str, late: Sequence[IntervalReport], limit: timedelta
) -> Mapping[str, Sequence[IntervalReport]]:
    """Give each interval an alert: one that stays hides none that comes later.

    Beyond MOST_OF_A_KIND, one alert is for all the others. They stay in it when others are over,
    and only what lags since it began gets a place of its own.
    """
    missing = [r.interval for r in late if r.interval and r.state is IntervalState.MISSING]
    names = _outages(tx, topology, missing, max(limit, GRACE))
    outages: dict[Interval | None, str] = dict(zip(missing, names, strict=True))
    subjects = [outages.get(report.interval) or str(report.interval or "") for report in late]
    ages = {row["subject"]: row["age"] for row in tx.all("open_lags", topology=topology)}
    alone = {subject for subject in subjects if subject in ages}
    by_subject: dict[str, list[IntervalReport]] = {}
    for report, subject in zip(late, subjects, strict=True):
        if subject not in alone:
            was_told = "" in ages and report.age > limit + ages[""]
            if was_told or len(alone) >= MOST_OF_A_KIND:
                subject = ""
            else:
                alone.add(subject)
        by_subject.setdefault(subject, []).append(report)
    return by_subject


def _outages(
    tx: DatabaseTransaction, topology: str, missing: Sequence[Interval], limit: timedelta
) -> Iterator[str]:
    """Name each row of missing intervals after the last txid before it that was emitted in time.

    The name stays while the outage grows, and while a backfill fills it from whichever end.
    """
    starts, txid = [row.start for row in missing], 0
    for row in tx.all("last_in_time", topology=topology, starts=starts, limit=limit):
        txid = row["txid"] or txid
        yield f"missing after {txid}"


def _expired(tx: DatabaseTransaction, topology: str) -> Iterator[Condition]:
    for row in tx.all("expired_leases", topology=topology):
        attempt = TransactionAttempt(row["txid"], row["attempt_id"])
        yield Condition(
            kind=AlertKind.LEASE_EXPIRED,
            subject=str(attempt),
            what=f"attempt {attempt} showed no progress until its lease expired",
            advice="Its process has died, or hangs: look at its task's log. The next try of the "
            "task begins another attempt.",
            command=f"reliability show {topology} {attempt.txid}",
            since=row["since"],
        )


def _unsatisfied(tx: DatabaseTransaction, topology: str) -> Iterator[Condition]:
    for row in tx.all("runs_without_their_txids"):
        if row["topology"] == topology:
            yield Condition(
                kind=AlertKind.RUN_UNSATISFIED,
                subject=f"{row['dag_id']}/{row['run_id']}",
                what=f"run {row['run_id']} of {row['dag_id']} has ended without "
                f"{with_noun(format_ranges(row['txids']))}",
                advice="Fix the cause, and clear what the ledger shows undone.",
                command=f"reliability resume-runs {topology}",
                since=row["ended_at"],
            )


def _changed_by_hand(tx: DatabaseTransaction, topology: str) -> Iterator[Condition]:
    for row in tx.all("verified", topology=topology):
        if row["wrong"] is not None:
            yield Condition(
                kind=AlertKind.CHANGED_BY_HAND,
                subject=f"{row['database']}/{row['state']}",
                what=f"the table of state {row['state']} differs from its contributions: "
                f"{row['wrong']}",
                advice="Somebody has changed it by hand; see what differs, and what to do.",
                command=f"reliability verify {topology}",
                since=row["verified_at"],
            )


def channel_names(names: Sequence[str]) -> list[str]:
    """Number names that occur more than once.

    >>> channel_names(["mail", "chat", "mail"])
    ['mail', 'chat', 'mail 2']
    """
    unique: list[str] = []
    for name in names:
        count = sum(1 for other in unique if other == name or other.startswith(f"{name} ")) + 1
        unique.append(name if count == 1 else f"{name} {count}")
    return unique
