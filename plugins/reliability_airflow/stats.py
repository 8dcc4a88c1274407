"""What tasks tell Airflow's own stats: StatsD, OpenTelemetry or Datadog (docs/monitoring.md).

Each figure is `reliability.NAME` with the tag `topology`. As for Airflow's own metrics, it is told
once more with the topology in its name, unless `[metrics] legacy_names_on` is off: StatsD by itself
has no tags. What goes wrong here is logged, and never fails a task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from reliability.core.errors import ReliabilityError
from reliability.core.names import metric_of
from reliability_airflow.releases import stats

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection, Row
    from reliability.transaction.commit.apply import Committed
    from reliability.transaction.maintain.sweep import Swept

logger = logging.getLogger(__name__)
PREFIX = "reliability"


def is_on() -> bool:
    """Return whether Airflow is configured to send metrics anywhere."""
    from airflow.configuration import conf

    options = ("statsd_on", "otel_on", "statsd_datadog_enabled")
    return any(conf.getboolean("metrics", name, fallback=False) for name in options)


@contextmanager
def _never_failing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        logger.warning("a metric was not told: %r", error)


@dataclass(frozen=True, slots=True)
class TopologyStats:
    """The figures of one topology; does nothing if no metrics are configured."""

    topology: str

    def began(self) -> None:
        """Count an attempt that began."""
        self._count("attempts", 1)

    @contextmanager
    def counting_failure(self, connection: LedgerConnection, txid: int) -> Iterator[None]:
        """Count the attempt that failed or was fenced, if the block fails with it."""
        since = None
        with _never_failing():
            if is_on():
                with connection.transaction(reads_only=True) as tx:
                    since = tx.one("server_time")["now"]
        try:
            yield
        except ReliabilityError:
            key = {"topology": self.topology, "txid": txid, "since": since}
            with _never_failing():
                if since is not None:
                    with connection.transaction(reads_only=True) as tx:
                        row = tx.first("how_an_attempt_ended", **key)
                    if row is not None and row["status"] in ("FAILED", "FENCED"):
                        self._count(row["status"].lower(), 1)
            raise

    def swept(self, connection: LedgerConnection, swept: Swept) -> None:
        """Count what a sweep has fenced and committed."""
        self._count("fenced", len(swept.expired))
        self.committed(connection, swept.committed)

    def committed(self, connection: LedgerConnection, committed: Iterable[Committed]) -> None:
        """Count commits and their rows, and tell how long each took."""
        numbers = [done.commit_number for done in committed]
        with _never_failing():
            if not numbers or not is_on():
                return
            with connection.transaction(reads_only=True) as tx:
                figures = tx.all(
                    "figures_of_commits", topology=self.topology, commit_numbers=numbers
                )
            for row in figures:
                self._count("replays" if row["is_replay"] else "commits", 1)
                self._count("rows", row["rows"])
                if row["seconds"] is not None:
                    took = timedelta(seconds=row["seconds"])
                    self._tell("timing", "commit_duration", took)

    def gauges(self, figures: Row) -> None:
        """Tell where the topology stands: each column but its name; not what has no value yet."""
        for name, value in figures.items():
            if name != "topology" and value is not None:
                self._tell("gauge", name, value)

    def _count(self, name: str, count: int) -> None:
        if count:
            self._tell("incr", name, count)

    def _tell(self, method: str, name: str, value: Any) -> None:
        with _never_failing():
            if not is_on():
                return
            from airflow.configuration import conf

            function = getattr(stats(), method)
            function(f"{PREFIX}.{name}", value, tags={"topology": self.topology})
            if conf.getboolean("metrics", "legacy_names_on", fallback=True):
                function(f"{PREFIX}.{name}.{metric_of(self.topology)}", value)


def tell_gauges(read: Callable[[], Iterable[Row]]) -> None:
    """Tell where every topology stands.

    :param read: reads the figures of each topology from the ledger
    """
    with _never_failing():
        if is_on():
            for row in read():
                TopologyStats(row["topology"]).gauges(row)
