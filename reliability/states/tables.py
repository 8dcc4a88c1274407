"""The tables of a state: their columns, their creation, and the SQL for staged rows.

Each state has two tables:

- the target `<schema>.<table>`: key, values, hidden columns, `_txid` (the greatest in the row);
- the contributions `reliability_contribution.<topology>__<state>`: the staged rows of each attempt.

An attempt with many rows has a table of its own for them (attempt_table.py).

With `as_view` the target is a view of the contributions, which shows those that a header names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.column import Column, Generated
from reliability.core.state import State
from reliability.states.compose import fold_by_key, names, qualified

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction

CONTRIBUTION_SCHEMA = "reliability_contribution"
SINGLE_ROW_KEY = "_key"  # the hidden key of a state without one: its table has one row
TXID = "_txid"
_ALL_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as CREATE TABLE defines it.

    :param rest: the text after the type
    :param when_added: the text after the type if the column is added to a table that has rows
    """

    type: str
    rest: str = ""
    when_added: str = ""

    @property
    def is_generated(self) -> bool:
        return "GENERATED" in self.rest

    @property
    def has_default_when_added(self) -> bool:
        """Return whether rows that are there get a value; later rows need no default."""
        return "DEFAULT" in self.when_added


_BOOKKEEPING = {
    "_txid": TableColumn("bigint", " NOT NULL"),
    "_attempt_id": TableColumn("integer", " NOT NULL"),
    "_x": TableColumn("bigint", " NOT NULL"),
    "_n": TableColumn("bigint", " NOT NULL"),
}


class StateTables:
    """The tables of one state of one topology.

    :param attempt_table: the number of the attempt's own table, None if its rows are staged in the
        contributions' table
    """

    def __init__(self, topology: str, state: State, attempt_table: int | None = None) -> None:
        self.topology = topology
        self.state = state
        self.attempt_table = attempt_table
        self.columns = state.columns()
        self.key = tuple(state.key) or (() if state.is_append else (SINGLE_ROW_KEY,))
        self.target = Identifier(*state.target)
        self.contribution_table = f"{topology}__{state.name}"
        self.contribution = Identifier(CONTRIBUTION_SCHEMA, self.contribution_table)

    @property
    def as_view(self) -> bool:
        """Return whether the target is a view of the contributions."""
        return self.state.as_view

    @property
    def target_name(self) -> str:
        return ".".join(self.state.target)

    def with_attempt_table(self, number: int) -> StateTables:
        """Return the same tables, with this one for the attempt's rows."""
        return StateTables(self.topology, self.state, number)

    @property
    def staged(self) -> Identifier:
        """Return the table in which the attempt's rows are staged."""
        if self.attempt_table is None:
            return self.contribution
        return attempt_table_of(self.attempt_table)

    @property
    def attempt_tables_inherit(self) -> bool:
        """Return whether who reads the contributions' table reads attempts' own tables too."""
        return self.as_view or not self.state.is_append

    @property
    def contribution_name(self) -> str:
        return f"{CONTRIBUTION_SCHEMA}.{self.contribution_table}"

    @property
    def keeps_contributions(self) -> bool:
        """Return whether staged rows stay in their table when their attempt commits."""
        return self.state.keeps_contributions

    @property
    def key_constraint(self) -> str:
        return f"{self.state.target[1]}_key"

    def value_names(self) -> list[str]:
        """Return the written columns without the key."""
        return [column.name for column in self.columns]

    def column_types(self) -> dict[str, str]:
        """Return key and written columns with their Postgres types, in table order."""
        return self._key_types() | {column.name: column.type for column in self.columns}

    def _key_types(self) -> dict[str, str]:
        return {name: self.state.key.get(name, "boolean") for name in self.key}

    # --- columns ---------------------------------------------------------------------------------

    def target_columns(self) -> dict[str, TableColumn]:
        """Return the columns of the target table."""
        found = {name: TableColumn(type_) for name, type_ in self._key_types().items()}
        found |= {column.name: _table_column(column) for column in self.state.all_columns()}
        if self.as_view:  # a new column of a view comes last
            return {
                name: TableColumn(column.type) for name, column in (_BOOKKEEPING | found).items()
            }
        if self.state.is_append:
            return found | _BOOKKEEPING
        found[TXID] = _BOOKKEEPING[TXID]
        if self.state.keeps_previous:
            found |= {previous(column.name): _table_column(column) for column in self.columns}
            found[previous(TXID)] = TableColumn("bigint")
        return found

    def contribution_columns(self) -> dict[str, TableColumn]:
        """Return the columns of the contributions' table."""
        types = {name: TableColumn(type_) for name, type_ in self._key_types().items()}
        types |= {column.name: _table_column(column) for column in self.columns}
        return {name: (types | _BOOKKEEPING)[name] for name in self.staged_columns()}

    def create_schema(self) -> Composed:
        """Create the schema of the target table."""
        return SQL("CREATE SCHEMA {}").format(Identifier(self.state.target[0]))

    def create(self) -> Composed:
        """Create both tables; in the target's key NULL equals NULL."""
        contribution = SQL(
            "CREATE TABLE {contribution} ({columns});"
            "CREATE INDEX ON {contribution} (_txid, _attempt_id);"
        ).format(
            contribution=self.contribution,
            columns=column_definitions(self.contribution_columns()),
        )
        return contribution + self._create_target() + SQL(";") + self._create_keys()

    def _create_target(self) -> Composed:
        if self.as_view:
            return self.create_view()
        return SQL("CREATE TABLE {} ({})").format(
            self.target, column_definitions(self.target_columns())
        )

    def create_view(self) -> Composed:
        """Create the target as a view, or add columns to it.

        An inner join could start with the headers and read the table once for each, if their
        statistics are old. With `header.txid IS NOT NULL`, Postgres would make this one an inner
        join. Without security_barrier, a reader's function would see rows that do not count.
        """
        return SQL(
            "CREATE OR REPLACE VIEW {target} WITH (security_barrier = true) AS"
            " SELECT {columns} FROM {contribution} AS staged"
            " LEFT JOIN reliability.contribution AS header"
            " ON {header}"
            " AND header.txid = staged._txid AND header.attempt_id = staged._attempt_id"
            " WHERE coalesce(header.rows, -1) >= 0"
        ).format(
            target=self.target,
            contribution=self.contribution,
            columns=qualified("staged", self.target_columns()),
            header=header_of(self),
        )

    def drop_view(self) -> Composed:
        """Drop the target that is a view; fail if something depends on it."""
        return SQL("DROP VIEW IF EXISTS {}").format(self.target)

    def drop(self) -> Composed:
        """Drop both tables; fail if something depends on the target."""
        if self.as_view:
            drop_table = SQL("; DROP TABLE IF EXISTS {}").format(self.contribution)
            return self.drop_view() + drop_table
        return SQL("DROP TABLE IF EXISTS {}, {}").format(self.target, self.contribution)

    def count(self) -> Composed:
        """Count the rows of the target."""
        return SQL("SELECT count(*) AS rows FROM {}").format(self.target)

    def _create_keys(self) -> Composed:
        key = names(self.key)
        by_key = SQL("CREATE INDEX ON {} ({});" if self.key else "")
        if self.as_view:
            return by_key.format(self.contribution, key)
        if self.state.is_append:
            # Rows are appended in the order of their txids. An index of every row would take a
            # third of a large commit, and only replays and rollbacks look rows up by their txid.
            by_txid = SQL(
                "CREATE INDEX ON {} USING brin (_txid, _attempt_id)"
                " WITH (pages_per_range = 32, autosummarize = on);"
            )
            return by_txid.format(self.target) + by_key.format(self.target, key)
        unique = self.add_key()
        if self.keeps_contributions:  # a replay reads the other txids of a key there
            unique += SQL("; CREATE INDEX ON {} ({})").format(self.contribution, key)
        return unique

    def index_attempt_table(self) -> Composed:
        """Create an index by the key on the attempt's own table; safe to repeat."""
        name = Identifier(f"{self.staged.strings[-1]}_key")
        return SQL("CREATE INDEX IF NOT EXISTS {} ON {} ({})").format(
            name, self.staged, names(self.key)
        )

    def add_key(self) -> Composed:
        """Make the target's key unique."""
        return SQL("ALTER TABLE {} ADD CONSTRAINT {} UNIQUE NULLS NOT DISTINCT ({})").format(
            self.target, Identifier(self.key_constraint), names(self.key)
        )

    def rights(self) -> list[tuple[str, str, str]]:
        """Return what staging, committing and replaying need: schema, table and rights."""
        contributions = (CONTRIBUTION_SCHEMA, self.contribution_table, "SELECT, INSERT, DELETE")
        if self.as_view:
            return [contributions]
        rights = "SELECT, INSERT, DELETE" if self.state.is_append else _ALL_RIGHTS
        return [contributions, (*self.state.target, rights)]

    # --- staging ---------------------------------------------------------------------------------

    def copy(self) -> Composed:
        """COPY staged rows in Postgres's binary format."""
        return SQL("COPY {} ({}) FROM STDIN WITH (FORMAT binary)").format(
            self.staged, names(self.copied_types())
        )

    def staged_columns(self) -> tuple[str, ...]:
        """Return the columns of a staged row, in the table's order."""
        return ("_txid", "_attempt_id", *self.reduced_columns())

    def copied_types(self) -> dict[str, str]:
        """Return the columns of a COPY with their Postgres types, in its order.

        A table of the attempt's own knows its txid and its attempt_id.
        """
        copied = self.reduced_columns() if self.attempt_table else self.staged_columns()
        types = self.contribution_columns()
        return {name: types[name].type for name in copied}

    def reduced_columns(self) -> tuple[str, ...]:
        """Return the columns of a row as Spark hands it over: without the attempt's name."""
        return (*self.column_types(), "_x", "_n")

    def staged_accounts(self) -> Composed:
        """Fold the rows that are physically staged for an attempt (V1)."""
        return SQL(
            "SELECT coalesce(bit_xor(_x), 0) AS xor, coalesce(sum(_n), 0)::bigint AS count,"
            " count(*) AS rows FROM {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s"
        ).format(self.staged)

    def staged_part(self, columns: Iterable[str]) -> Composed:
        """Read one of `parts` parts of an attempt's rows; a row is always in the same part."""
        return SQL(
            "SELECT {} FROM {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s"
            " AND abs(_x %% %(parts)s) = %(part)s"
        ).format(names(columns), self.staged)

    def clean(self) -> Composed:
        """Delete the staged rows of an attempt that can never count or that count already.

        Those in a table of its own are dropped with it.
        """
        return SQL(
            "DELETE FROM ONLY {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s"
        ).format(self.contribution)

    def copy_attempt_table(self, to: Identifier) -> Composed:
        """Copy the rows of the attempt's own table into another table of the state."""
        return SQL("INSERT INTO {to} ({names}) SELECT {names} FROM {staged}").format(
            to=to, staged=self.staged, names=names(self.staged_columns())
        )

    def hold_contributions(self) -> Composed:
        """Keep all tables of the contributions; unlike a query, it takes no snapshot."""
        return SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(self.contribution)

    def analyze_attempt_table(self) -> Composed:
        """Tell the planner how many rows and keys the attempt's own table has."""
        return SQL("ANALYZE {} (_txid, _attempt_id, {})").format(self.staged, names(self.key))

    def folded_attempt(self, parameter: str) -> Composed:
        """Fold one attempt's staged rows by key: two partitions may have staged the same key."""
        source = SQL("{} AS staged WHERE _txid = %(txid)s AND _attempt_id = %({})s").format(
            self.contribution, SQL(parameter)
        )
        return fold_by_key(self.columns, names(self.key), source, staged="staged")


def check_rights(tx: DatabaseTransaction, tables: Iterable[StateTables]) -> None:
    """Queue the check that the session's role may change these states, all in one database.

    :raises RightMissing: with the next statement, naming the GRANTs that are missing
    """
    needed = [needs for one in tables for needs in one.rights()]
    tx.queue(
        "check_rights",
        schemas=[schema for schema, _, _ in needed],
        tables=[table for _, table, _ in needed],
        rights=[rights for _, _, rights in needed],
    )


def header_of(tables: StateTables) -> Composed:
    """Return the condition for the rows of the table of headers, named `header`, of this state."""
    return SQL("header.topology = {} AND header.state = {}").format(
        Literal(tables.topology), Literal(tables.state.name)
    )


def attempt_table_of(number: int) -> Identifier:
    """Return the name of an attempt's own table."""
    return Identifier(CONTRIBUTION_SCHEMA, f"attempt_{number}")


def previous(column: str) -> str:
    """Return the hidden column with an OpaqueState's value before the row's last txid."""
    return f"_{column}_previous"


def column_definitions(columns: Mapping[str, TableColumn]) -> Composable:
    """Return columns as CREATE TABLE lists them."""
    return SQL(", ").join(
        SQL("{} {}").format(Identifier(name), SQL(column.type + column.rest))
        for name, column in columns.items()
    )


def _table_column(column: Column | Generated) -> TableColumn:
    if isinstance(column, Generated):
        generated = f" GENERATED ALWAYS AS ({column.expression}) STORED"
        return TableColumn(column.type, generated, generated)
    return TableColumn(column.type, when_added=" DEFAULT 0" if column.is_count else "")
