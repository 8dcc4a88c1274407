"""TableSpout: rows that are added to a Postgres table, by a key that only grows.

The table needs an integer key, NOT NULL and unique, from a sequence. Rows may be added, but not
deleted, and columns that are read may not be updated; docs/spouts.md says what happens otherwise.
The spout is untimed: each run emits the rows that no txid has yet (E5).

Keys do not become visible in ascending order: 95 may follow 100. So a run waits until nobody writes
to the table (LOCK TABLE … IN SHARE MODE, for at most 3 seconds) and releases the lock at once. If
that is not granted or not wanted, the run ignores rows that are younger than a stated lag. Late
rows are found in any case; the lock and the lag only make them rare.

Postgres computes the tuple ids, both for the count and for the read (V6). The ledger stores the
keys of a txid as ranges: a few bytes for a txid without gaps, about 40 more for each gap.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from reliability.core.errors import InvalidDefinition, SourceChanged
from reliability.core.fold import Fold
from reliability.core.keys import cut_ranges, read_ranges, write_ranges
from reliability.core.lineage import Dataset
from reliability.core.names import source_of_table
from reliability.core.spout import (
    AllocatedItems,
    BatchMeta,
    Interval,
    SourceItem,
    Spout,
    only,
    source_item,
)
from reliability.core.types import as_spark_writes
from reliability.deployment.address import address_of, executor_address
from reliability.spark.frames.accounting_columns import check_source_columns, with_count
from reliability.spouts.ddl import ddl_of
from reliability.spouts.same_source import of_same_source
from reliability.spouts.source_table import SourceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_AT_ONCE = 100_000  # what one Spark task reads


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows(SourceItem):
    """Rows of a table, with their fold as Postgres computed it.

    :param table: the table and its database, as the spout's `source` writes them
    """

    table: str
    rows: int
    xor: int

    @property
    def identity(self) -> str:
        ranges = read_ranges(self.part)
        return f"{self.table}#{ranges[0][0]}-{ranges[-1][1]}"

    @property
    def source(self) -> str:
        return self.table

    @property
    def fold(self) -> Fold:
        return Fold(self.xor, self.rows)


class PostgresSpout(Spout):
    """A spout of a Postgres table, whose items are batches of TableRows."""

    @property
    @abstractmethod
    def source_table(self) -> SourceTable: ...

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        """Make each item a batch: `plan` has already cut them by rows."""
        return [(item,) for item in items]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        return Fold.of(item.fold for item in only(TableRows, items))

    def datasets(self, items: Sequence[SourceItem]) -> Sequence[Dataset]:
        return [self.source_table.dataset(sum(item.rows for item in items))]


@source_item
@dataclass(frozen=True, slots=True, kw_only=True)
class TableKeys(TableRows):
    """The rows of a table that have these keys.

    :param key: the column of the keys
    :param keys: exactly the keys that existed, an int8multirange
    """

    kind: ClassVar[str] = "table"
    key: str
    keys: str

    @property
    def part(self) -> str:
        return self.keys


@dataclass(frozen=True)
class TableSpout(PostgresSpout):
    """The rows of a table that no txid has yet, in the order of their key.

    :param table: `table` or `schema.table`, in the upper and lower case that Postgres has
    :param key: its unique key, smallint, integer or bigint
    :param columns: the columns to read; the default is all
    :param max_rows_per_batch: the most rows that a txid reads
    :param database: the name of the table's database: RELIABILITY_DSN_<NAME>, a libpq service of
        that name, or what database_conn_ids names; the default is the ledger's database
    :param lag_seconds: take no lock, and ignore rows that are younger by `lag_column`, a
        timestamptz that is NOT NULL
    :param opaque: a new attempt of a txid may read other rows, until the txid commits
    :param rows_change: a row that changes gets a new key, a version from a sequence, and is read
        again; needs `opaque`, because a batch may lose rows until it commits
    :param types: column -> the Spark type in which it is read, `string` or, of a numeric,
        `decimal(p,s)`. By default a numeric without digits is a decimal(38,18)
    """

    table: str
    key: str
    columns: Sequence[str] = ()
    max_rows_per_batch: int = 1_000_000
    database: str = ""
    lag_seconds: int | None = None
    lag_column: str = ""
    opaque: bool = False
    rows_change: bool = False
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", as_spark_writes(self.types))
        if self.max_rows_per_batch < 1:
            raise InvalidDefinition("TableSpout: max_rows_per_batch must be at least 1")
        if (self.lag_seconds is None) != (not self.lag_column):
            raise InvalidDefinition("TableSpout: lag_seconds and lag_column need each other")
        if self.rows_change and not self.opaque:
            raise InvalidDefinition(
                "TableSpout: rows_change needs opaque=True: a row may change between the emission "
                "of its txid and the attempt that reads it"
            )

    @property
    def source_table(self) -> SourceTable:
        return SourceTable(database=self.database, name=self.table, key=self.key)

    @property
    def source(self) -> str:
        return source_of_table(self.database, self.source_table.place)

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        """List the rows that no txid has, one item per batch, and check the keys that txids have.

        :raises SourceChanged: a key that a txid has is gone; the txid is named
        :raises TableUnreadable: the table stays locked, or its database refuses
        :raises InvalidDefinition: the table does not have these `columns` or this `key`
        """
        self.source_table.columns(self.columns, self.lag_column, self.types)
        if last := allocated.last(TableKeys):
            self._own([last])
        lag = None if self.lag_seconds is None else (self.lag_column, self.lag_seconds)
        batches, changed = self.source_table.new_batches(
            allocated.keys(self.source), lag, self.max_rows_per_batch
        )
        # Numbers below 1 are uncommitted batches: their own attempts find a lost row.
        lost = [] if self.rows_change else [txid for txid in changed if txid > 0]
        if txids := ", ".join(map(str, lost)):
            raise SourceChanged(f"table {self.table}: rows that txid {txids} has read are gone")
        return [
            TableKeys(table=self.source, key=self.key, keys=keys, rows=fold.count, xor=fold.xor)
            for keys, fold in batches
        ]

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a row of the batch is gone or has another key."""
        for item in self._own(meta.items):
            now = self.source_table.fold(item.keys)
            if now != item.fold:
                raise SourceChanged(
                    f"table {self.table}: {item.rows} rows were emitted, {now.count} of them "
                    "still exist"
                )

    def _own(self, items: Iterable[SourceItem]) -> list[TableKeys]:
        """Return keys; raise SourceChanged if some are of another table, or of another column."""
        own = f"{self.source} by {self.key}"
        return of_same_source(TableKeys, items, lambda item: f"{item.table} by {item.key}", own)

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        """Return those keys of a batch that exist now, with their fold."""
        now = [(item, *self.source_table.present(item.keys)) for item in self._own(meta.items)]
        items = [replace(i, keys=keys, rows=fold.count, xor=fold.xor) for i, keys, fold in now]
        return [item for item in items if item.rows]

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        """Read the rows of the batch's keys; Postgres computes the tuple ids as in `count` (V6)."""
        columns = self.source_table.columns(self.columns, self.lag_column, self.types)
        parts = [
            write_ranges(part)
            for item in self._own(meta.items)
            for part in cut_ranges(read_ranges(item.keys), ROWS_AT_ONCE)
        ]
        queries = self.source_table.queries(list(columns), parts)
        return frame_of_queries(spark, self.database, columns, queries)


def frame_of_queries(
    spark: SparkSession, database: str, columns: Mapping[str, str], queries: Sequence[str]
) -> DataFrame:
    """Return the rows of queries of these columns and `_x`, with `_n`.

    :param columns: name -> Spark type
    :raises SchemaMismatch: a column is called like one of the library's
    """
    from reliability.spark.stage.read_postgres import read_postgres

    check_source_columns(list(columns))
    address = executor_address(database) or address_of(database)
    schema = f"{ddl_of(columns.items())}, _x bigint"
    return with_count(read_postgres(spark, address, queries, schema))
