"""Record each emission in the ledger, above all one that fails: it leaves no txid behind.

The beginning and a failure are transactions of their own. The success is recorded in the
transaction that allocates the txids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from reliability.core.errors import NOT_ANSWERING, ReliabilityError
from reliability.core.schedule import Schedule
from reliability.core.spout import Interval
from reliability.core.statement_key import StatementKey
from reliability.ledger.connection import LedgerConnection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmissionKey(StatementKey):
    """The emission of one run."""

    topology: str
    dag_id: str
    run_id: str


def has_ended(connection: LedgerConnection, key: EmissionKey) -> bool:
    """Say whether a run has emitted, or has failed to."""
    with connection.transaction(reads_only=True) as tx:
        return bool(tx.one("emission_has_ended", **key)["has_ended"])


@contextmanager
def recorded_emission(
    connection: LedgerConnection,
    key: EmissionKey,
    interval: Interval | None,
    schedule: Schedule | None,
) -> Iterator[None]:
    """Record that an emission begins, and why it fails if it does.

    Nothing is recorded of a ledger that does not answer: the task waits for it.

    :param schedule: the schedule of the run's DAG; not recorded for an untimed spout
    """
    ends = {
        "interval_start": interval and interval.start,
        "interval_end": interval and interval.end,
    }
    with connection.transaction() as tx:
        if schedule is not None and interval is not None:
            tx.run("record_schedule", topology=key.topology, dag_id=key.dag_id, **schedule)
        tx.run("begin_emission", **key, **ends)
    try:
        yield
    except NOT_ANSWERING:
        raise
    except ReliabilityError as error:
        _record_failure(connection, key, error.code, error.what)
        if interval is not None:
            error.name_interval(None, str(interval))
        raise
    except Exception as error:  # a spout may raise anything
        _record_failure(connection, key, type(error).__name__, str(error))
        raise


def _record_failure(connection: LedgerConnection, key: EmissionKey, code: str, reason: str) -> None:
    try:
        with connection.transaction() as tx:
            tx.run("fail_emission", **key, reason_code=code, reason=reason)
    except ReliabilityError as error:  # it must not hide the first error
        logger.warning("the failed emission was not recorded: %s", error)
