"""TableSpout: rows that are added to a Postgres table, by a key that only grows.

What it needs from its source: an integer key, NOT NULL and unique, from a sequence; rows that are
only added, never deleted, and never updated in what is read. It is untimed: each run emits the rows
that no txid has yet (E5). If the source breaks that:

- a row that is deleted, or gets another key, is found at the next emission, which counts every key
  again, and when an attempt of its txid begins or is sealed: SOURCE_CHANGED, with the txid
- a row that is updated otherwise is not noticed: attempts after that read what it is then
- a row with a small key that comes late, because its sequence number was older than its commit, or
  because a person added it, gets a txid of its own at the next emission

Keys are not commit-ordered: 95 may become visible after 100. So a run waits until nobody writes to
the table (LOCK TABLE … IN SHARE MODE, for 3 seconds at most) and lets go at once; or, where that
is not granted or not wanted, it leaves alone what is younger than a stated lag. Neither is needed
for correctness, as late rows are found: it makes them rare.

Postgres counts the batch and computes the tuple ids, in the count and in the read (V6). Which keys
a txid has is remembered as ranges: a table without gaps costs a few bytes a txid, a key after each
gap about 40.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from reliability.core.aggregators.column import quoted
from reliability.core.errors import InvalidDefinition, LedgerCorruption, SourceChanged
from reliability.core.fold import Fold
from reliability.core.keys import cut_ranges, read_ranges, write_ranges
from reliability.core.spout import (
    AllocatedItems,
    BatchMeta,
    Interval,
    SourceItem,
    SpoutKind,
    kind_of,
    source_item,
)
from reliability.settings import database_dsn
from reliability.spark.frames import check_source_columns, with_count
from reliability.spouts.source_table import NEWEST_ID, SourceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_AT_ONCE = 100_000  # what one Spark task reads


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class TableKeys:
    """The rows of a table that have these keys, with their fold as Postgres counted it.

    :param table: which table of which database, as `TableSpout.source` writes it
    :param keys: exactly the keys that were there, an int8multirange
    :param id_version: which hash of the key is a row's tuple id; a batch is counted, read and
        compared by the one that it was frozen with, and 1 is that of batches which name none
    """

    kind: ClassVar[str] = "table"
    is_counted: ClassVar[bool] = False
    table: str
    keys: str
    rows: int
    xor: int
    id_version: int = 1

    def __post_init__(self) -> None:
        if self.id_version not in range(1, NEWEST_ID + 1):
            raise LedgerCorruption(
                f"a batch of table {self.table} has tuple ids of version {self.id_version}, this "
                f"release knows them up to {NEWEST_ID}",
                remedy="install the release that emitted the batch, or a later one.",
            )

    @property
    def identity(self) -> str:
        ranges = read_ranges(self.keys)
        return f"{self.table}#{ranges[0][0]}-{ranges[-1][1]}"

    @property
    def source(self) -> str:
        return self.table

    @property
    def part(self) -> str:
        return self.keys


@dataclass(frozen=True)
class TableSpout:
    """The rows of a table that no txid has yet, in the order of their key.

    :param table: `table` or `schema.table`, with upper and lower case as Postgres has them
    :param key: its unique key, smallint, integer or bigint
    :param columns: the columns to read; all of them unless given
    :param max_rows_per_batch: a txid reads at most so many rows
    :param database: the name of the table's database: RELIABILITY_DSN_<NAME>, or a libpq service of
        that name; the ledger's own unless given
    :param lag_seconds: leave alone rows younger than that by `lag_column`, a timestamptz that
        is NOT NULL, and take no lock
    :param opaque: a new attempt of a txid may see other rows, until it commits
    """

    table: str
    key: str
    columns: Sequence[str] = ()
    max_rows_per_batch: int = 1_000_000
    database: str = ""
    lag_seconds: int | None = None
    lag_column: str = ""
    opaque: bool = False

    def __post_init__(self) -> None:
        if self.max_rows_per_batch < 1:
            raise InvalidDefinition("TableSpout: max_rows_per_batch starts at 1")
        if (self.lag_seconds is None) != (not self.lag_column):
            raise InvalidDefinition("TableSpout: lag_seconds and lag_column go together")

    @property
    def kind(self) -> SpoutKind:
        return kind_of(self.opaque)

    @property
    def timed(self) -> bool:
        return False

    @property
    def source_table(self) -> SourceTable:
        return SourceTable(database=self.database, name=self.table, key=self.key)

    @property
    def source(self) -> str:
        """Return what the ledger calls the table."""
        return f"table:{self.database}/{'.'.join(self.source_table.place)}"

    def is_ready(self, txid: int, interval: Interval | None) -> bool:
        """A table can always be read."""
        return True

    def plan(self, interval: Interval | None, taken: AllocatedItems) -> list[SourceItem]:
        """List the rows that no txid has, an item a batch, and count what txids have again.

        :raises SourceChanged: a key that a txid has is gone; the txid is named
        :raises SourceUnreadable: the table stays locked, or its database refuses
        :raises InvalidDefinition: the table is not as `columns` and `key` say
        """
        self.source_table.columns(self.columns, self.lag_column)
        lag = None if self.lag_seconds is None else (self.lag_column, self.lag_seconds)
        batches, broken = self.source_table.new_batches(
            taken.keys(self.source), lag, self.max_rows_per_batch
        )
        # An uncommitted batch that lost a row, below 1, is for its own attempt to find.
        if names := ", ".join(str(txid) for txid in broken if txid > 0):
            raise SourceChanged(f"table {self.table}: rows are gone that txid {names} has read")
        return [
            TableKeys(
                table=self.source, keys=keys, rows=fold.count, xor=fold.xor, id_version=NEWEST_ID
            )
            for keys, fold in batches
        ]

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Make a batch of each item: `plan` has cut them by rows."""
        return [(item,) for item in items]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        """Return the fold of a batch as Postgres counted it."""
        return Fold.of(Fold(item.xor, item.rows) for item in _tables(items))

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a row of the batch is gone or has another key."""
        for item in _tables(meta.items):
            found = self.source_table.fold(item.keys, item.id_version)
            if found != Fold(item.xor, item.rows):
                raise SourceChanged(
                    f"table {self.table}: {item.rows} rows were emitted, {found.count} of them are "
                    "there now"
                )

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        """Return the rows of a batch's keys that are there now, as Postgres counts them."""
        found = [self._refreshed(item) for item in _tables(meta.items)]
        return [item for item in found if item.rows]

    def _refreshed(self, item: TableKeys) -> TableKeys:
        keys, fold = self.source_table.present(item.keys, NEWEST_ID)
        if keys == item.keys:
            return item
        return replace(item, keys=keys, rows=fold.count, xor=fold.xor, id_version=NEWEST_ID)

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the batch's keys; Postgres computes the tuple ids as it did when it counted (V6)."""
        from reliability.spark.read_postgres import read_postgres

        columns, queries = self.reading(meta)
        check_source_columns(list(columns))
        schema = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
        dsn = database_dsn(self.database)
        return with_count(read_postgres(spark, dsn, queries, f"{schema}, _x bigint"))

    def reading(self, meta: BatchMeta) -> tuple[dict[str, str], list[str]]:
        """Return a batch's columns, name -> Spark type, and the queries that read it in parts.

        Each query selects the columns in this order, and then the row's tuple id.
        """
        columns = self.source_table.columns(self.columns)
        parts = [
            (write_ranges(part), item.id_version)
            for item in _tables(meta.items)
            for part in cut_ranges(read_ranges(item.keys), ROWS_AT_ONCE)
        ]
        return columns, self.source_table.queries(list(columns), parts)


def _tables(items: Sequence[SourceItem]) -> list[TableKeys]:
    return [item for item in items if isinstance(item, TableKeys)]
