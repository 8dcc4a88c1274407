"""A user's table as TableSpout queries it; the statements lie in sql/queries/source.sql.

Only the names of the user's table and columns are inserted here. The statements qualify every
column with its table, so that a user's name cannot collide with one of theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reliability.core.errors import (
    InvalidDefinition,
    ReliabilityError,
    RightMissing,
    TableUnreadable,
)
from reliability.core.fold import Fold, reserved
from reliability.core.keys import cut_ranges, read_ranges, write_ranges
from reliability.core.lineage import Dataset, table_dataset
from reliability.core.remedy import Remedy
from reliability.core.types import check_read_as, read_as
from reliability.deployment.address import address_of
from reliability.deployment.lazy import sql

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, LedgerConnection

KEY_TYPES = ("smallint", "integer", "bigint")
_TABLES = ("r", "p")  # tables and partitioned ones, as pg_class calls them
_VIEWS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_NOT_LOCKED = ("m", "f")
_OTHER_KINDS = {
    "S": "a sequence",
    "c": "a type",
    "i": "an index",
    "I": "an index",
}
_LAG_TYPE = "timestamp with time zone"
_RIGHTS = Remedy(
    "grant the role SELECT on the table. A TableSpout locks it for a moment, which takes UPDATE, "
    "too: grant that, or set lag_seconds= and lag_column=. Then {resume_runs}."
)
_MODIFIER = re.compile(r"\((\d+)(?:,(-?\d+))?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """One table; each method runs its own transaction in the table's database."""

    database: str
    name: str
    key: str

    @property
    def place(self) -> tuple[str, str]:
        """Return (schema, table); a name with a dot in it must be written with its schema."""
        schema, dot, table = self.name.partition(".")
        return (schema, table) if dot else ("public", self.name)

    def columns(
        self,
        wanted: Sequence[str],
        lag_column: str = "",
        types: Mapping[str, str] | None = None,
        *,
        key_types: Collection[str] = KEY_TYPES,
    ) -> dict[str, str]:
        """Return the columns, name -> Spark type: all, or the wanted ones in their order.

        :param types: of columns that are read in another type than their own
        :param key_types: which types the key may have; empty for any
        :raises InvalidDefinition: there is no such table or column, the key is not unique, the lag
            column may be NULL or is no timestamptz, or Spark cannot tell columns apart
        """
        with self.transaction() as tx:
            place = {"schema": self.place[0], "table": self.place[1]}
            kind = tx.first("source_table", **place)
            columns = {row["name"]: row for row in tx.all("source_columns", **place)}
            is_unique = tx.one("source_key_is_unique", key=self.key, **place)["is_unique"]
        is_table = self._check_kind(kind, has_lag=bool(lag_column))
        named = [self.key, *wanted, *([lag_column] if lag_column else [])]
        if missing := [name for name in named if name not in columns]:
            raise InvalidDefinition(f"table {self.name} has no columns {missing}")
        self._check_read(dict.fromkeys(wanted or columns))
        lag = columns[lag_column] if lag_column else None
        if lag and (lag["type"] != _LAG_TYPE or (is_table and not lag["is_not_null"])):
            raise InvalidDefinition(
                f"table {self.name}: its column {lag_column} must be a timestamptz, NOT NULL"
            )
        key = columns[self.key]
        is_known = key["type"] in key_types or not key_types
        if not is_known or (is_table and not (is_unique and key["is_not_null"])):
            type_ = "an integer, " if key_types else ""
            raise InvalidDefinition(
                f"table {self.name}: its key {self.key} must be {type_}NOT NULL, with a unique "
                "index of its own"
            )
        read = {name: columns[name]["type"] for name in wanted or columns}
        check_read_as(types or {}, read, f"table {self.name}")
        return {name: _spark_type(type_) for name, type_ in read.items()} | {**(types or {})}

    def _check_kind(self, row: Mapping[str, Any] | None, *, has_lag: bool) -> bool:
        """Say whether it is a table, and not a view, of which no index says something."""
        schema, table = self.place
        if row is None:
            raise InvalidDefinition(f"there is no table {table} in schema {schema}")
        if row["kind"] not in _TABLES and row["kind"] not in _VIEWS:
            kind = _OTHER_KINDS.get(row["kind"], f"of kind {row['kind']}")
            raise InvalidDefinition(f"{self.name} is {kind}, and no table or view")
        if row["kind"] in _NOT_LOCKED and not has_lag:
            raise InvalidDefinition(
                f"{self.name} is {_VIEWS[row['kind']]}, which Postgres does not lock",
                remedy="set lag_column= and lag_seconds=.",
            )
        if row["has_children"]:
            raise InvalidDefinition(
                f"table {self.name} has tables that inherit from it, and no index makes its key "
                "unique over all of them",
                remedy="read each of them in its own topology, or partition the table.",
            )
        return row["kind"] in _TABLES

    def check_rows(self, tx: DatabaseTransaction, moment: str = "") -> None:
        """Raise InvalidDefinition if a row of a view has no key of its own, or no time.

        :param moment: a column with a time
        """
        schema, table = self.place
        if tx.one("source_table", schema=schema, table=table)["kind"] in _TABLES:
            return
        column = sql.Identifier(moment or self.key)
        if rows := tx.one(self.compose("rows_without_key", moment=column))["count"]:
            raise InvalidDefinition(
                f"view {self.name}: {rows} rows have a key {self.key} that is NULL or another "
                f"row's{f', or no {moment}' if moment else ''}",
                remedy="let the view show rows with a key of their own.",
            )

    def _check_read(self, columns: Iterable[str]) -> None:
        """Refuse columns that a Spark frame cannot have: Spark ignores the case of names."""
        remedy = "name the columns to read: TableSpout(…, columns=[…])."
        if taken := reserved(columns):
            raise InvalidDefinition(
                f"table {self.name} has columns of its own called {taken}", remedy=remedy
            )
        lower = Counter(name.lower() for name in columns)
        if ambiguous := [name for name in columns if lower[name.lower()] > 1]:
            raise InvalidDefinition(
                f"table {self.name}: Spark does not tell its columns {ambiguous} apart",
                remedy=remedy,
            )

    def new_batches(
        self, known: Mapping[int, str], lag: tuple[str, int] | None, max_rows: int
    ) -> tuple[list[tuple[str, Fold]], list[int]]:
        """Return the keys that no txid has, in batches, and the txids that lost a key.

        A batch is an int8multirange and the fold of its tuple ids. All batches are of one snapshot.
        Late keys, which are below a known key, come first and in their own batches.

        :param known: the keys that txids have
        :param lag: a column and seconds; without it the table is locked for a moment
        """
        with self.transaction() as tx:
            tx.run("isolate_source")
            is_settled: sql.Composable = sql.SQL("true")
            if lag is None:
                tx.run(self.compose("settle_source"))
            else:
                is_settled = self.compose("older_than_lag", column=sql.Identifier(lag[0]))
            row = tx.one(
                self.compose("source_keys", is_settled=is_settled),
                txids=list(known),
                parts=list(known.values()),
                lag_seconds=lag[1] if lag else 0,
            )
            self.check_rows(tx, lag[0] if lag else "")
            ranges_of_keys = [read_ranges(keys) for keys in (row["late"], row["fresh"])]
            pieces = [piece for ranges in ranges_of_keys for piece in cut_ranges(ranges, max_rows)]
            batches = [write_ranges(piece) for piece in pieces]
            folds = [(keys, self._fold(tx, keys)) for keys in batches]
            return folds, row["changed"]

    def fold(self, keys: str) -> Fold:
        """Return the fold of the tuple ids of the rows that now have these keys."""
        with self.transaction() as tx:
            return self._fold(tx, keys)

    def present(self, keys: str) -> tuple[str, Fold]:
        """Return which of these keys exist now, and the fold of their rows' tuple ids."""
        with self.transaction() as tx:
            tx.run("isolate_source")
            row = tx.one(self.compose("present_source_keys"), keys=keys)
            return row["keys"], self._fold(tx, row["keys"])

    def _fold(self, tx: DatabaseTransaction, keys: str) -> Fold:
        row = tx.one(self.compose("fold_source_keys"), keys=keys)
        return Fold(row["xor"], row["count"])

    def queries(self, columns: Sequence[str], parts: Sequence[str]) -> list[str]:
        """Return a query for each of these ranges of keys, which selects these columns and `_x`."""
        read = sql.SQL(", ").join([sql.Identifier("source", column) for column in columns])
        with self.transaction() as tx:
            query = self.compose("source_rows", columns=read)
            return [tx.filled(query, keys=keys) for keys in parts]

    def compose(self, statement: str, **parts: sql.Composable) -> sql.Composed:
        """Insert the names of the table and its key, and other parts, into a statement."""
        from reliability.ledger.queries import queries

        names = {"table": sql.Identifier(*self.place), "key": sql.Identifier(self.key)}
        terms = {
            name: sql.SQL(queries()[name]).format(**names)
            for name in ("tuple_id", "has_wanted_key")
        }
        return sql.SQL(queries()[statement]).format(**names, **terms, **parts)

    def dataset(self, rows: int) -> Dataset:
        """Return where the table is, as lineage names it, with the number of rows read."""
        with self._connection() as connection:
            return table_dataset(*connection.server(), *self.place, rows=rows)

    @contextmanager
    def transaction(self) -> Iterator[DatabaseTransaction]:
        """Open a transaction in the table's database; raise TableUnreadable if it fails."""
        with self._connection() as connection, connection.transaction(reads_only=True) as tx:
            yield tx

    @contextmanager
    def _connection(self) -> Iterator[LedgerConnection]:
        from reliability.ledger.connection import LedgerConnection

        with LedgerConnection(address_of(self.database), "reliability source") as connection:
            try:
                yield connection
            except InvalidDefinition:
                raise
            except ReliabilityError as error:
                remedy = None
                if isinstance(error, RightMissing):  # if it has its own, that is of a policy
                    remedy = _RIGHTS if error.remedy is RightMissing.remedy else error.remedy
                raise TableUnreadable(f"table {self.name}: {error.what}", remedy=remedy) from error


def _spark_type(postgres_type: str) -> str:
    """Return the Spark type of a column: `string` if Spark has no type for it."""
    match = _MODIFIER.search(postgres_type)
    if match is None or not postgres_type.startswith("numeric"):
        return read_as(_MODIFIER.sub("", postgres_type))
    precision, scale = int(match[1]), int(match[2] or 0)
    if scale < 0:  # it ends with so many zeros before the point
        precision, scale = precision - scale, 0
    return read_as(_MODIFIER.sub(f"({precision},{scale})", postgres_type))
