"""The tables of a state: what all kinds share of their columns, creation, and staged rows.

Each state has two tables:

- the target `<schema>.<table>`: key, values, hidden columns, `_txid` (the greatest in the row);
- the contributions, in schema reliability_contribution: the staged rows of each attempt. It is
  called `<topology>__<state>` where names are short and plain (`contribution_table_of`).

An attempt with many rows has a table of its own for them (attempt_table.py). How the target looks
is up to the kind of the state (kinds).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal, Placeholder

from reliability.core.column import Column, Generated
from reliability.core.names import contribution_table_of, name_of_table
from reliability.core.state import State
from reliability.states.compose import fill, fold_by_key, names, qualified

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction

CONTRIBUTION_SCHEMA = "reliability_contribution"
SINGLE_ROW_KEY = "_key"  # the hidden key of a state without one: its table has one row
TXID = "_txid"
Tables = TypeVar("Tables", bound="StateTables")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as CREATE TABLE defines it.

    :param rest: the text after the type
    :param when_added: the text after the type if the column is added to a table that has rows
    :param generated: the expression that generates it, a template
    """

    type: str
    rest: str = ""
    when_added: str = ""
    generated: str = ""

    @property
    def is_generated(self) -> bool:
        return bool(self.generated)

    def definition(self, name: str, rest: str) -> Composed:
        """Return the column with what is written after its type."""
        column = SQL("{} {}").format(Identifier(name), SQL(self.type + rest))
        if not self.generated:
            return column
        value = fill(self.generated, row=Identifier)
        return SQL("{} GENERATED ALWAYS AS ({}) STORED").format(column, value)

    @property
    def has_default_when_added(self) -> bool:
        """Return whether rows that are there get a value; later rows need no default."""
        return "DEFAULT" in self.when_added

    @classmethod
    def of(cls, column: Column | Generated) -> TableColumn:
        if isinstance(column, Generated):
            return cls(column.type, generated=column.expression)
        return cls(column.type, when_added=" DEFAULT 0" if column.is_count else "")


BOOKKEEPING = {
    TXID: TableColumn("bigint", " NOT NULL"),
    "_attempt_id": TableColumn("integer", " NOT NULL"),
    "_x": TableColumn("bigint", " NOT NULL"),
    "_n": TableColumn("bigint", " NOT NULL"),
}


class StateTables(ABC):
    """The tables of one state of one topology; each kind of state has a subclass.

    :param attempt_table: the number of the attempt's own table, None if its rows are staged in the
        contributions' table
    :cvar keeps_contributions: staged rows stay in their table when their attempt commits, and rows
        of the target are folded from them
    :cvar is_view: the target is a view of the contributions
    :cvar attempt_tables_inherit: who reads the contributions' table reads attempts' own tables too
    :cvar rights_on_target: what a commit, a replay and a rollback need; empty for none
    """

    keeps_contributions: ClassVar[bool] = False
    is_view: ClassVar[bool] = False
    attempt_tables_inherit: ClassVar[bool] = True
    rights_on_target: ClassVar[str] = "SELECT, INSERT, UPDATE, DELETE"

    def __init__(self, topology: str, state: State) -> None:
        self.topology = topology
        self.state = state
        self.attempt_table: int | None = None
        self.columns = state.columns()
        self.key = tuple(state.key) or (() if state.is_append else (SINGLE_ROW_KEY,))
        self.target = Identifier(*state.target)
        self.target_name = name_of_table(*state.target)  # as to_regclass() reads it
        self.contribution_table = contribution_table_of(topology, state.name)
        self.contribution = Identifier(CONTRIBUTION_SCHEMA, self.contribution_table)
        self.contribution_name = name_of_table(CONTRIBUTION_SCHEMA, self.contribution_table)

    @property
    def keeps_staged_rows(self) -> bool:
        """Say whether what a committed attempt has staged stays where it is."""
        return self.is_view or self.keeps_contributions

    @property
    def name(self) -> str:
        return self.state.name

    def with_attempt_table(self: Tables, number: int | None) -> Tables:
        """Return the same tables, with this one for the attempt's rows, None for no own one."""
        same = copy(self)
        same.attempt_table = number
        return same

    @property
    def staged(self) -> Identifier:
        if self.attempt_table is None:
            return self.contribution
        return attempt_table_of(self.attempt_table)

    def sql(self, template: str, **parts: Composable) -> Composed:
        """Fill a template with `parts`, and with what every statement of the state may name.

        - `{target}`, `{contribution}`, `{staged}`: its tables
        - `{key}`; `{written}`: the columns of the key; those and all that are written
        - `{header}`: the condition for its rows of the table of headers, which is named `header`
        - `{of_attempt}`: the condition for the rows of one attempt
        """
        return SQL(template).format(**{**self._parts, "staged": self.staged, **parts})

    @cached_property
    def _parts(self) -> dict[str, Composable]:
        return {
            "target": self.target,
            "contribution": self.contribution,
            "key": names(self.key),
            "written": names(self.column_types()),
            "header": SQL("header.topology = {} AND header.state = {}").format(
                Literal(self.topology), Literal(self.name)
            ),
            "of_attempt": SQL("_txid = %(txid)s AND _attempt_id = %(attempt_id)s"),
        }

    def all_rows(self) -> Composed:
        """Read all rows of the target, hidden columns too."""
        return self.sql("SELECT * FROM {target}")

    # --- columns ---------------------------------------------------------------------------------

    def value_names(self) -> list[str]:
        """Return the written columns without the key."""
        return [column.name for column in self.columns]

    def column_types(self) -> dict[str, str]:
        """Return key and written columns with their Postgres types, in table order."""
        return self._key_types() | {column.name: column.type for column in self.columns}

    def _key_types(self) -> dict[str, str]:
        return {name: self.state.key.get(name, "boolean") for name in self.key}

    def key_and_values(self) -> dict[str, TableColumn]:
        """Return the columns that the target has in every kind of state."""
        key = {name: TableColumn(type_) for name, type_ in self._key_types().items()}
        return key | {column.name: TableColumn.of(column) for column in self.state.all_columns()}

    @abstractmethod
    def target_columns(self) -> dict[str, TableColumn]:
        """Return the columns of the target table."""

    def contribution_columns(self) -> dict[str, TableColumn]:
        """Return the columns of the contributions' table: those of a staged row, in its order."""
        columns = self.key_and_values() | BOOKKEEPING
        return {name: columns[name] for name in (TXID, "_attempt_id", *self.reduced_columns())}

    def reduced_columns(self) -> tuple[str, ...]:
        """Return the columns of a row as Spark hands it over: without the attempt's name."""
        return (*self.column_types(), "_x", "_n")

    def copied_types(self) -> dict[str, str]:
        """Return the columns of a COPY with their Postgres types, in its order.

        A table of the attempt's own knows its txid and its attempt_id.
        """
        types = self.contribution_columns()
        copied = self.reduced_columns() if self.attempt_table else types
        return {name: types[name].type for name in copied}

    # --- creation --------------------------------------------------------------------------------

    def create_schema(self) -> Composed:
        return SQL("CREATE SCHEMA {}").format(Identifier(self.state.target[0]))

    def create(self) -> Composed:
        return self.create_contributions() + SQL(";") + self.create_target()

    def create_contributions(self) -> Composed:
        """Create them; a server may publish all tables, and they have no key."""
        return self.sql(
            "CREATE TABLE {contribution} ({columns});"
            "ALTER TABLE {contribution} REPLICA IDENTITY FULL;"
            "CREATE INDEX ON {contribution} (_txid, _attempt_id)",
            columns=column_definitions(self.contribution_columns()),
        )

    def create_target(self) -> Composed:
        """Create the target, with its indexes and those that it needs of the contributions."""
        columns = column_definitions(self.target_columns())
        created = self.sql("CREATE TABLE {target} ({columns})", columns=columns)
        return SQL(";").join([created, *self.index_target()])

    def index_target(self) -> list[Composed]:
        """Return the statements that make the target's keys and indexes, and those below it."""
        return []

    def create_view(self) -> Composed:
        """Create the target as a view, or add columns to it.

        An inner join could start with the headers and read the table once for each, if their
        statistics are old. With `header.txid IS NOT NULL`, Postgres would make this one an inner
        join. Without security_barrier, a reader's function would see rows that do not count.
        """
        return self.sql(
            "CREATE OR REPLACE VIEW {target} WITH (security_barrier = true) AS"
            " SELECT {columns} FROM {contribution} AS staged"
            " LEFT JOIN reliability.contribution AS header"
            " ON {header}"
            " AND header.txid = staged._txid AND header.attempt_id = staged._attempt_id"
            " WHERE coalesce(header.rows, -1) >= 0",
            columns=qualified("staged", self.target_columns()),
        )

    def drop_view(self) -> Composed:
        return self.sql("DROP VIEW IF EXISTS {target}")

    def add_key(self) -> Composed | None:
        """Make the target's key unique; None if keys may repeat."""
        return None

    def drop(self) -> Composed:
        """Drop both tables; fail if something depends on the target."""
        return self.sql("DROP TABLE IF EXISTS {target}, {contribution}")

    def hidden_columns(self) -> list[str]:
        """Return the columns of the target that the ledger needs and a reader does not."""
        shown = {*self.state.key, *self.state.values}
        return [name for name in self.target_columns() if name not in shown]

    def make_ordinary(self, there: Collection[str]) -> list[Composed]:
        """Make the target an ordinary table with the same rows, without the ledger's columns.

        Values that Postgres generates from hidden columns become plain ones first.

        :param there: the names of the columns that it has
        """
        alter = [
            SQL("ALTER {} DROP EXPRESSION IF EXISTS").format(Identifier(name))
            for name, column in self.target_columns().items()
            if column.is_generated and name in there
        ]
        drop = [
            SQL("DROP COLUMN IF EXISTS {}").format(Identifier(name))
            for name in self.hidden_columns()
        ]
        return [
            self.sql("ALTER TABLE {target} ") + SQL(", ").join(actions)
            for actions in (alter, drop)
            if actions
        ]

    def drop_contributions(self) -> Composed:
        return self.sql("DROP TABLE IF EXISTS {contribution}")

    def count(self) -> Composed:
        return self.sql("SELECT count(*) AS rows FROM {target}")

    def hold_contributions(self) -> Composed:
        """Keep all tables of the contributions; unlike a query, it takes no snapshot."""
        return self.sql("LOCK TABLE {contribution} IN ACCESS SHARE MODE")

    def rights(self) -> list[tuple[str, str, str]]:
        """Return what staging, committing and replaying need: schema, table and rights."""
        rights = [(CONTRIBUTION_SCHEMA, self.contribution_table, "SELECT, INSERT, DELETE")]
        if self.rights_on_target:
            rights.append((*self.state.target, self.rights_on_target))
        return rights

    # --- staging ---------------------------------------------------------------------------------

    def copy(self) -> Composed:
        """COPY staged rows in Postgres's binary format."""
        return self.sql(
            "COPY {staged} ({columns}) FROM STDIN WITH (FORMAT binary)",
            columns=names(self.copied_types()),
        )

    def staged_accounts(self) -> Composed:
        """Fold the rows that are physically staged for an attempt (V1)."""
        return self.sql(
            "SELECT coalesce(bit_xor(_x), 0) AS xor, coalesce(sum(_n), 0)::bigint AS count,"
            " count(*) AS rows FROM {staged} WHERE {of_attempt}"
        )

    def staged_part(self, columns: Iterable[str]) -> Composed:
        """Read one of `parts` parts of an attempt's rows; a row is always in the same part."""
        return self.sql(
            "SELECT {columns} FROM {staged} WHERE {of_attempt} AND abs(_x %% %(parts)s) = %(part)s",
            columns=names(columns),
        )

    def staged_part_for_executors(self, columns: Mapping[str, str]) -> Composed:
        """Do the same as a role that shows the attempt's nonce, and may read no table (S8).

        :param columns: with their Postgres types
        """
        return self.sql(
            "SELECT * FROM reliability.read_staged(%(topology)s, %(txid)s, %(attempt_id)s,"
            " %(nonce)s::uuid, {state}, {names}::text[], %(parts)s, %(part)s) AS staged({columns})",
            state=Literal(self.name),
            names=Literal(list(columns)),
            columns=column_definitions({n: TableColumn(type_) for n, type_ in columns.items()}),
        )

    def clean(self) -> Composed:
        """Delete the staged rows of an attempt that can never count or that count already.

        Those in a table of its own are dropped with it.
        """
        return self.sql("DELETE FROM ONLY {contribution} WHERE {of_attempt}")

    def copy_attempt_table(self, to: Identifier) -> Composed:
        return self.sql(
            "INSERT INTO {to} ({columns}) SELECT {columns} FROM {staged}",
            to=to,
            columns=names(self.contribution_columns()),
        )

    def attempt_rows(self) -> Composed:
        """Read one attempt's staged rows, of which no two have the same key."""
        return self.sql("SELECT {written} FROM {contribution} WHERE {of_attempt}")

    def folded_attempt(self, attempt_id: str = "attempt_id") -> Composed:
        """Fold one attempt's staged rows by key: two partitions may have staged the same key.

        :param attempt_id: the name of the parameter
        """
        source = self.sql(
            "{contribution} AS staged WHERE _txid = %(txid)s AND _attempt_id = {attempt_id}",
            attempt_id=Placeholder(attempt_id),
        )
        return fold_by_key(self.columns, names(self.key), source, staged="staged")


def check_rights(tx: DatabaseTransaction, states: Iterable[StateTables]) -> None:
    """Queue the check that the session's role may change these states, all in one database.

    :raises RightMissing: with the next statement, naming the GRANTs that are missing
    """
    needed = [right for tables in states for right in tables.rights()]
    tx.queue(
        "check_rights",
        schemas=[schema for schema, _, _ in needed],
        tables=[table for _, table, _ in needed],
        rights=[rights for _, _, rights in needed],
    )


def attempt_table_of(number: int) -> Identifier:
    return Identifier(CONTRIBUTION_SCHEMA, f"attempt_{number}")


def column_definitions(columns: Mapping[str, TableColumn]) -> Composable:
    """Return columns as CREATE TABLE lists them."""
    return SQL(", ").join(column.definition(name, column.rest) for name, column in columns.items())
