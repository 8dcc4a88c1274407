"""A user's table as UpdatedRowsSpout queries it, by the time of each row's last change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from reliability.core.errors import InvalidDefinition
from reliability.core.fold import Fold
from reliability.deployment.lazy import sql
from reliability.spouts.source_table import SourceTable

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction

FIRST = -(210_866_803_200 * 1_000_000)  # the first moment that Postgres has: 4714 BC


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Up to when no row is still to come.

    :param until: microseconds since 1970, like `now`, the time of the database's clock
    :param is_hidden: sessions of other roles hide since when they are in a transaction
    :param oldest: since when a transaction is open, if any is
    """

    until: int
    now: int
    is_hidden: bool
    oldest: datetime | None

    @property
    def is_waiting(self) -> bool:
        """Say whether an open transaction, and not the lag, is what it waits for."""
        return bool(self.oldest and self.oldest.timestamp() * 1e6 <= self.until + 2)


@dataclass(frozen=True, slots=True)
class UpdatedTable:
    """One table; each method runs its own transaction in the table's database.

    :param moment: the column with the time of a row's last change
    """

    table: SourceTable
    moment: str

    def settled(self, lag_seconds: int) -> Settled:
        """Ask up to when rows are settled.

        To be asked before the rows are: a transaction that commits in between is seen in the rows.
        """
        with self.table.transaction() as tx:
            row = tx.one("settled_until", lag_seconds=lag_seconds)
        return Settled(
            until=row["until"],
            now=row["now"],
            is_hidden=bool(row["is_hidden"]),
            oldest=row["oldest"],
        )

    def windows(self, first: int, last: int, most: int) -> list[tuple[int, int, Fold]]:
        """Return windows of about so many rows: first and last microsecond, and the fold.

        They leave no moment out. A window without rows is none.

        :raises InvalidDefinition: a row has no time, or no key of its own
        """
        with self.table.transaction() as tx:
            tx.run("isolate_source")
            self.table.check_rows(tx, self.moment)
            if tx.one(self._compose("endless_moments"))["are_there"]:
                raise InvalidDefinition(
                    f"table {self.table.name}: the {self.moment} of a row is infinity or "
                    "-infinity, which no window of time has"
                )
            rows = self._pieces(tx, first, last, most)
        starts = [first, *(row[1] + 1 for row in rows)]
        return [(start, end, fold) for start, (_, end, fold) in zip(starts, rows, strict=False)]

    def fold(self, first: int, last: int) -> Fold:
        """Return the fold of the rows that are in a window now."""
        with self.table.transaction() as tx:
            return Fold.of(fold for *_, fold in self._pieces(tx, first, last, 1 << 62))

    def queries(
        self, columns: Sequence[str], windows: Iterable[tuple[int, int]], most: int
    ) -> list[str]:
        """Return queries for windows, of about so many rows each: these columns and `_x`."""
        read = sql.SQL(", ").join([sql.Identifier("source", column) for column in columns])
        with self.table.transaction() as tx:
            query = self._compose("window_rows", columns=read)
            return [
                tx.filled(query, first=start, last=end)
                for first, last in windows
                for start, end, _ in self._pieces(tx, first, last, most)
            ]

    def _pieces(
        self, tx: DatabaseTransaction, first: int, last: int, most: int
    ) -> list[tuple[int, int, Fold]]:
        rows = tx.all(self._compose("source_windows"), first=first, last=last, most=most)
        return [(row["first"], row["last"], Fold(row["xor"], row["count"])) for row in rows]

    def _compose(self, statement: str, **parts: sql.Composable) -> sql.Composed:
        from reliability.ledger.queries import queries

        moment = sql.Identifier(self.moment)
        micros = sql.SQL(queries()["microseconds"]).format(moment=moment)
        terms = {
            "microseconds": micros,
            "in_window": sql.SQL(queries()["in_window"]).format(moment=moment),
            "version_id": sql.SQL(queries()["version_id"]).format(
                key=sql.Identifier(self.table.key), microseconds=micros
            ),
        }
        return self.table.compose(statement, moment=moment, **terms, **parts)
