"""UpdatedRowsSpout: rows of a Postgres table, and again after each change, by the time of it.

A row is read when the time of its last change is settled: no open transaction can commit an older
one. Postgres tells when each open transaction began, and the time that it writes (`now()`,
`clock_timestamp()`) is not earlier. Against a time of another clock, or a session that hides when
it began, nothing but a lag guards: what commits later than that is missed, and said if it shows.

A batch is a window of time. A row that changes leaves it, so a batch is cut again until it commits
(E4), and a replay is refused if rows of it have changed (E6).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from reliability.core.errors import InvalidDefinition, SourceChanged
from reliability.core.keys import read_ranges, write_ranges
from reliability.core.names import source_of_table
from reliability.core.remedy import Remedy
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem, source_item
from reliability.core.types import as_spark_writes
from reliability.spouts.same_source import of_same_source
from reliability.spouts.source_table import SourceTable
from reliability.spouts.table import ROWS_AT_ONCE, PostgresSpout, TableRows, frame_of_queries
from reliability.spouts.updated_table import FIRST, UpdatedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class TableWindow(TableRows):
    """The rows of a table whose last change was in a window of time.

    :param table: names the column of the time too
    :param first: microseconds since 1970
    :param last: the last of them that belongs to the window
    """

    kind: ClassVar[str] = "table window"
    first: int
    last: int

    @property
    def identity(self) -> str:
        """A person reads it: of moments, and the first window begins before all of them."""
        first = "" if self.first == FIRST else _moment(self.first)
        return f"{self.table}#{first}..{_moment(self.last)}"

    @property
    def part(self) -> str:
        return write_ranges([(self.first, self.last + 1)])


def _moment(microseconds: int) -> str:
    """Write a moment in UTC; Postgres has years that Python has not."""
    try:
        return f"{(datetime(1970, 1, 1) + timedelta(microseconds=microseconds)).isoformat()}Z"
    except OverflowError:
        return str(microseconds)


@dataclass(frozen=True)
class UpdatedRowsSpout(PostgresSpout):
    """The rows of a table or view that were changed since the last txid, in the order of time.

    :param table: `table` or `schema.table`, in the upper and lower case that Postgres has
    :param key: its unique key, of any type
    :param updated_at: a timestamptz, NOT NULL, that each change of a row sets to its
        transaction's time, or to a later one
    :param lag_seconds: rows that are younger are left for later, even if nothing is open
    :param columns: the columns to read; the default is all
    :param max_rows_per_batch: about the most rows that a txid reads; rows of one moment are read
        by one
    :param database: as of a TableSpout
    :param opaque: a batch loses rows that change before it commits, so nothing else is possible
    :param types: as of a TableSpout
    """

    table: str
    key: str
    updated_at: str
    lag_seconds: int = 10
    columns: Sequence[str] = ()
    max_rows_per_batch: int = 1_000_000
    database: str = ""
    opaque: bool = True
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", as_spark_writes(self.types))
        if self.max_rows_per_batch < 1:
            raise InvalidDefinition("UpdatedRowsSpout: max_rows_per_batch must be at least 1")
        if self.lag_seconds < 1:  # a transaction begins a moment before others see that it has
            raise InvalidDefinition("UpdatedRowsSpout: lag_seconds must be at least 1")
        if not self.opaque:
            raise InvalidDefinition("UpdatedRowsSpout: its batches change until they commit")

    @property
    def source_table(self) -> SourceTable:
        return SourceTable(database=self.database, name=self.table, key=self.key)

    @property
    def updates(self) -> UpdatedTable:
        return UpdatedTable(self.source_table, self.updated_at)

    @property
    def source(self) -> str:
        table = source_of_table(self.database, self.source_table.place)
        return f"{table} by {self.updated_at}"

    def _columns(self) -> dict[str, str]:
        return self.source_table.columns(self.columns, self.updated_at, self.types, key_types=())

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        """List what was changed since the last txid, one item per batch.

        :raises SourceChanged: rows were committed into the window of the last txid, too late; or
            its database's clock was set back
        :raises TableUnreadable: the table's database refuses
        :raises InvalidDefinition: the table does not have these columns or this key
        """
        self._columns()
        first = self._after(allocated)
        settled = self.updates.settled(self.lag_seconds)
        if first > settled.now:
            raise SourceChanged(
                f"table {self.table}: txids have read the changes of a time that is still to come: "
                "the clock of its database was set back",
                remedy="when the clock is past it, give each row that was changed meanwhile a "
                f"later {self.updated_at}: changes before it are not read.",
            )
        if settled.is_hidden:
            logger.warning(
                "whether rows of %s are still to be committed with an older %s is not shown, so "
                "nothing but lag_seconds=%s guards against it; to see it, the role needs "
                "pg_read_all_stats, and the server track_activities",
                *(self.table, self.updated_at, self.lag_seconds),
            )
        if settled.is_waiting:
            logger.info(
                "rows of %s from %s on are left for later: a transaction is open since then",
                *(self.table, settled.oldest),
            )
        return [
            TableWindow(table=self.source, first=start, last=end, rows=fold.count, xor=fold.xor)
            for start, end, fold in self.updates.windows(
                first, settled.until, self.max_rows_per_batch
            )
        ]

    def _after(self, allocated: AllocatedItems) -> int:
        """Return where the next window begins."""
        if last := allocated.last(TableWindow):
            self._own([last])
        ends = {
            txid: read_ranges(part)[-1][1] for txid, part in allocated.keys(self.source).items()
        }
        if not ends:
            return FIRST
        txid = max(ends, key=lambda txid: ends[txid])
        # Numbers below 1 are uncommitted batches, which are cut again.
        if txid > 0 and last:
            now = self.updates.fold(last.first, last.last)
            if now.count > last.rows:
                raise SourceChanged(
                    f"table {self.table}: txid {txid} has read {last.rows} rows, and now "
                    f"{now.count} have a {self.updated_at} in its window: they were committed "
                    f"later than lag_seconds={self.lag_seconds}, or by another clock",
                    remedy=Remedy(
                        "run {refreeze} for this txid, which reads them, and set a longer "
                        "lag_seconds=."
                    ),
                )
        return ends[txid]

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a row of the batch was changed, or came later."""
        for item in self._own(meta.items):
            now = self.updates.fold(item.first, item.last)
            if now != item.fold:
                raise SourceChanged(
                    f"table {self.table}: {item.rows} rows were emitted, and {now.count} have a "
                    f"{self.updated_at} in this window now"
                )

    def _own(self, items: Iterable[SourceItem]) -> list[TableWindow]:
        """Return windows; raise SourceChanged if one is of another table, or of another time."""
        return of_same_source(TableWindow, items, lambda item: item.table, self.source)

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        """Return the windows of a batch as they are now."""
        items = [
            replace(item, rows=fold.count, xor=fold.xor)
            for item in self._own(meta.items)
            for fold in [self.updates.fold(item.first, item.last)]
        ]
        return [item for item in items if item.rows]

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the rows of the windows; Postgres computes the tuple ids as in `count` (V6)."""
        columns = self._columns()
        windows = [(item.first, item.last) for item in self._own(meta.items)]
        queries = self.updates.queries(list(columns), windows, ROWS_AT_ONCE)
        return frame_of_queries(spark, self.database, columns, queries)
