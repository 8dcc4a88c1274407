"""Adopt a table: its rows become the contribution of txid 0 to a state (H7).

If it is the state's own table, it stays where it is and gets the hidden columns; otherwise its rows
are copied into the state's table. Nothing can ever take the rows out, so a hidden count is that of
one source row, and what a later txid adds to it or takes back is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.aggregators import ordered_value
from reliability.core.column import Column
from reliability.core.types import canonical, widens
from reliability.states.compose import aliased, fill, names
from reliability.states.tables import BOOKKEEPING, SINGLE_ROW_KEY, StateTables, TableColumn

#: the txid of adopted rows, and the attempt that no process has made
ADOPTED = 0
#: what an adopted row has in the columns that no row of a table has
_CONSTANTS = {
    "_txid": SQL("0"),
    "_attempt_id": SQL("0"),
    "_x": SQL("0"),
    "_n": SQL("1"),
    SINGLE_ROW_KEY: SQL("true"),
}


@dataclass(frozen=True, slots=True)
class AdoptedTable:
    """A table beside the state that is to adopt it.

    :param name: its schema and its name
    :param is_lockable: others can be kept from changing its rows
    :param rule: one of its rules that do something instead of what a commit does
    :param keys: its unique keys over the state's key, as the query `unique_keys` returns them
    :param columns: as the query `table_to_adopt` returns them
    """

    tables: StateTables
    name: tuple[str, str]
    is_ordinary: bool
    is_lockable: bool
    rule: str | None
    keys: Sequence[Mapping[str, Any]]
    columns: Sequence[Mapping[str, Any]]

    @property
    def is_in_place(self) -> bool:
        """Return whether it is the state's own table, which stays where it is."""
        return self.name == self.tables.state.target

    # --- whether it fits -------------------------------------------------------------------------

    def obstacles(self) -> list[str]:
        """Return why its columns cannot become the state's, none if they can."""
        return [*self._shape(), *self._values(), *self._types(), *self._further_columns()]

    def _shape(self) -> Iterator[str]:
        if not self.is_in_place:
            return
        if self.tables.is_view:
            yield "the state's rows are read through a view, and a table does not become one"
        elif not self.is_ordinary:
            yield "it is no ordinary table, but a view, a partition, unlogged or the like"
        elif any(key["is_deferrable"] for key in self.keys):
            yield "its unique key is deferrable, and no commit could look for it"
        elif self.rule:
            yield f"its rule {self.rule} does something instead of what a commit would do"

    def _values(self) -> Iterator[str]:
        for name, shown in self.tables.key_and_values().items():
            if shown.is_generated:
                yield f"value {name} is a mean, and a table of means lacks their sums and counts"
        for column in self.tables.columns:
            if column.orders_by and self._holder(column) is None:
                yield self._without_order(column)

    def _without_order(self, column: Column) -> str:
        values, by = self.tables.state.values, column.orders_by
        of = f"by which {ordered_value(values, column)[0]} is ordered,"
        if holders := self._holders(column):
            name, type_ = next(iter(holders.items()))
            return f"column {name}, {of} is {type_} instead of {canonical(column.type)}"
        why = f", and value {by} may be of another row" if by in values else ""
        return f"column {by}, {of} is missing{why}"

    def _types(self) -> Iterator[str]:
        have = {column["name"]: column for column in self.columns}
        for name, want in self._read().items():
            if name not in have:
                yield f"column {name} is missing"
                continue
            type_ = have[name]["type"]
            if not widens(_without_limit(type_), want):
                yield f"column {name} is {type_} instead of {canonical(want)}"
            elif self.is_in_place and not have[name]["is_written"]:
                yield f"column {name} is generated, and no commit could write it"
            elif self.is_in_place and have[name]["takes_unlike_for_equal"]:
                yield f"column {name} has a collation by which texts that differ may be equal"

    def _further_columns(self) -> Iterator[str]:
        if not self.is_in_place:
            return
        read, own = self._read(), self.tables.target_columns()
        for column in self.columns:
            name = column["name"]
            if name in own and name not in read:
                yield f"column {name} is there, and the state makes one of that name"
            elif name not in own and column["is_required"]:
                yield f"column {name} is not the state's, and every row needs a value for it"

    def _read(self) -> dict[str, str]:
        """Return the columns that the state takes as they are, with the types that it needs."""
        shown = [*self.tables.state.key, *self.tables.state.values]
        types = self.tables.column_types()
        return {name: types[name] for name in shown if name in types}

    def _holder(self, column: Column) -> str | None:
        """Return the column of the table that gives rows their order without rounding it."""
        holders = self._holders(column).items()
        return next((n for n, type_ in holders if widens(_without_limit(type_), column.type)), None)

    def _holders(self, column: Column) -> dict[str, str]:
        """Return the columns of the table with values by which rows are ordered, and their types.

        They are those of values which show the same row, or one that is no value of the state.
        """
        values, by = self.tables.state.values, column.orders_by
        _, ordered = ordered_value(values, column)
        have = {one["name"]: one["type"] for one in self.columns}
        shown = [name for name in values if ordered.has_in(values[name], by)]
        own = [] if by in values else [by]
        return {name: have[name] for name in (*shown, *own) if name in have}

    # --- its rows --------------------------------------------------------------------------------

    def hold(self) -> Composed:
        """Keep its columns as they are until the end, and its rows if that is possible."""
        table = Identifier(*self.name)
        if not self.is_lockable:  # who reads it keeps its columns, those of a view, too
            return SQL("SELECT FROM {} LIMIT 0").format(table)
        mode = SQL("ACCESS EXCLUSIVE" if self.is_in_place else "SHARE")
        return SQL("LOCK TABLE {} IN {} MODE").format(table, mode)

    def count(self, *, are_copied: bool = False) -> Composed:
        """Count its rows, those without a key or with a key that another row has, and NULL counts.

        Appended rows need no key, and may repeat it.

        :param are_copied: count the copies, in the state's table
        """
        tables = self.tables
        key = [] if tables.state.is_append else [*tables.state.key]
        counts = [c.name for c in tables.columns if c.is_count and c.name in tables.state.values]
        distinct = names(key) if key else SQL("true")
        repeated: Composable = SQL("count(*) - count(DISTINCT ({}))").format(distinct)
        if tables.state.is_append:
            repeated = SQL("0")
        return SQL(
            "SELECT count(*) AS rows, count(*) FILTER (WHERE {no_key}) AS without_key,"
            " count(*) FILTER (WHERE {no_count}) AS without_count,"
            " {repeated} AS repeated FROM {table}"
        ).format(
            no_key=_any_is_null(key),
            no_count=_any_is_null(counts),
            repeated=repeated,
            table=tables.target if are_copied else Identifier(*self.name),
        )

    # --- what makes it the state's ---------------------------------------------------------------

    def statements(self) -> list[Composed]:
        """Return the statements that take it over, or copy its rows; the state's tables are made.

        In place, only that of the contributions is.
        """
        tables = self.tables
        own = self._expressions()
        if not self.is_in_place:
            return [self._copy(tables.contribution if tables.is_view else tables.target, own)]
        key = tables.add_key() if any(key["is_usable"] for key in self.keys) else None
        indexes = (one for one in tables.index_target() if one != key)
        return [*self._add_columns(own), *indexes, *self._collate()]

    def _collate(self) -> Iterator[Composed]:
        """Return what lets the contributions be compared with keys that have their own collation.

        Postgres compares no column with one of another collation.
        """
        for name, type_ in self._read().items():
            collated = self._collated(name, type_)
            if name in self.tables.key and collated != SQL(type_):
                yield self.tables.sql(
                    "ALTER TABLE {contribution} ALTER {name} TYPE {type}",
                    name=Identifier(name),
                    type=collated,
                )

    def _collated(self, name: str, type_: str) -> SQL:
        """Return a type with the collation that the column has, if it has its own."""
        [column] = (column for column in self.columns if column["name"] == name)
        return SQL(f"{type_} COLLATE {column['collation']}" if column["collation"] else type_)

    def contribute(self) -> list[Composed]:
        """Return the statement that keeps the state's rows as its contribution, if it keeps any."""
        tables = self.tables
        if not tables.keeps_contributions:
            return []
        columns = tables.contribution_columns()
        constants = {name: _CONSTANTS[name] for name in BOOKKEEPING}
        values = {**{name: Identifier(name) for name in columns}, **constants}
        insert = tables.sql(
            "INSERT INTO {contribution} ({columns}) SELECT {values} FROM {target}",
            columns=names(columns),
            values=aliased({name: values[name] for name in columns}),
        )
        return [insert]

    def _expressions(self) -> dict[str, Composable]:
        """Return what a row of the table has in each column of the state."""
        found: dict[str, Composable] = {name: Identifier(name) for name in self.tables.state.key}
        for column in self.tables.columns:
            if column.orders_by:
                holder = self._holder(column)
                assert holder is not None
                found[column.name] = Identifier(holder)
            else:
                found[column.name] = _adopted(column)
        return found | _CONSTANTS

    def _copy(self, to: Identifier, own: Mapping[str, Composable]) -> Composed:
        is_view = self.tables.is_view
        columns = self.tables.contribution_columns() if is_view else self.tables.target_columns()
        copied = [name for name in columns if name in own]
        return SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
            to,
            names(copied),
            aliased({name: own[name] for name in copied}),
            Identifier(*self.name),
        )

    def _add_columns(self, own: Mapping[str, Composable]) -> list[Composed]:
        """Return the statements that add the hidden columns, and widen types that are narrower.

        No UPDATE: it would fire the table's triggers, which may change what is adopted.
        """
        have = {column["name"]: column["type"] for column in self.columns}
        added = {n: c for n, c in self.tables.target_columns().items() if n not in have}
        plain = {name: own[name] for name in added if _is_constant(own.get(name))}
        computed = {name: own[name] for name in added if name in own and name not in plain}
        add = [_add(name, column, plain.get(name)) for name, column in added.items()]
        altered = [SQL("ALTER {} DROP DEFAULT").format(Identifier(name)) for name in plain]
        altered += [
            SQL("ALTER {} TYPE {}").format(Identifier(name), self._collated(name, type_))
            for name, type_ in self._read().items()
            if have[name] != canonical(type_)
        ]
        altered += [
            SQL("ALTER {} TYPE {} USING {}").format(
                Identifier(name), SQL(added[name].type), SQL("({})").format(value)
            )
            for name, value in computed.items()
        ]
        return [
            self.tables.sql("ALTER TABLE {target} ") + SQL(", ").join(parts)
            for parts in (add, altered)
            if parts
        ]


def _without_limit(type_: str) -> str:
    """Return a type of the catalogs without a limit that no text of a value shows.

    >>> _without_limit("character varying(20)"), _without_limit("timestamp(3) with time zone")
    ('character varying', 'timestamp with time zone')
    """
    return re.sub(r"^(character varying|timestamp)\(\d+\)", r"\1", type_)


def _adopted(column: Column) -> Composable:
    if column.adopted:
        return fill(column.adopted, row=Identifier)
    return Identifier(column.name)


def _is_constant(value: Composable | None) -> bool:
    """Say whether the value is the same in every row, so that no row has to be written again."""
    parts = value.seq if isinstance(value, Composed) else [value]
    return value is not None and all(isinstance(part, SQL) for part in parts)


def _add(name: str, column: TableColumn, value: Composable | None) -> Composed:
    default = SQL("") if value is None else SQL(" DEFAULT ") + value
    return SQL("ADD {} {}").format(Identifier(name), SQL(column.type + column.rest)) + default


def _any_is_null(columns: Sequence[str]) -> Composable:
    terms = [SQL("{} IS NULL").format(Identifier(name)) for name in columns]
    return SQL(" OR ").join(terms) if terms else SQL("false")
