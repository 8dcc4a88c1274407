"""Compose the SQL of a state: its two tables, its fold, its first apply and its swap.

This is the only place where SQL is put together, because the columns are the user's; every
name goes through psycopg2.sql. Two tables belong to a state:

- the target `<schema>.<table>`: key, values, hidden counts, `_txid` (the greatest it holds);
- the contributions `reliability_contribution.<topology>__<state>`: what each attempt staged.
"""

from __future__ import annotations

from collections.abc import Iterable

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.aggregators import ROW_COUNT, Column
from reliability.core.definitions import State

CONTRIBUTION_SCHEMA = "reliability_contribution"
STAGED_BOOKKEEPING = ("_txid", "_attempt_id", "_x", "_n")
SINGLE_ROW_KEY = "_key"  # the hidden key of a state without one: its table has one row


class StateTables:
    """The SQL of one state of one topology."""

    def __init__(self, topology: str, state: State) -> None:
        self.topology = topology
        self.state = state
        self.columns = state.columns()
        self.key = tuple(state.key) or (SINGLE_ROW_KEY,)
        self.target = Identifier(*state.target)
        self.contribution_table = f"{topology}__{state.name}"
        self.contribution = Identifier(CONTRIBUTION_SCHEMA, self.contribution_table)

    @property
    def target_name(self) -> str:
        return ".".join(self.state.target)

    @property
    def is_invertible(self) -> bool:
        """Say whether a replay can take new − old for every column."""
        return all(column.swap is not None for column in self.columns)

    # --- tables ----------------------------------------------------------------------------------

    def create(self) -> Composed:
        """Create both tables; the target's key takes NULL as a value like any other."""
        return SQL(
            "CREATE TABLE {target} ({target_columns}, _txid bigint NOT NULL,"
            " CONSTRAINT {key_name} UNIQUE NULLS NOT DISTINCT ({key}));"
            "CREATE TABLE {contribution} (_txid bigint NOT NULL, _attempt_id integer NOT NULL,"
            " {staged_columns}, _x bigint NOT NULL, _n bigint NOT NULL);"
            "CREATE INDEX ON {contribution} (_txid, _attempt_id);"
            "CREATE INDEX ON {contribution} ({key})"
        ).format(
            target=self.target,
            contribution=self.contribution,
            key_name=Identifier(f"{self.state.target[1]}_key"),
            key=_names(self.key),
            target_columns=self._column_definitions(),
            staged_columns=self._column_definitions(),
        )

    def _column_definitions(self) -> Composed:
        return SQL(", ").join(
            SQL("{} {}").format(Identifier(name), SQL(type_))
            for name, type_ in self.column_types().items()
        )

    def column_types(self) -> dict[str, str]:
        """Return key and value columns with their Postgres types, in table order."""
        key = dict(self.state.key) or {SINGLE_ROW_KEY: "boolean"}
        return key | {column.name: column.type for column in self.columns}

    # --- staging ---------------------------------------------------------------------------------

    def copy(self) -> Composed:
        """COPY staged rows as CSV: NULL is bare, an empty string is quoted."""
        return SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv)").format(
            self.contribution, _names(self.staged_columns())
        )

    def staged_columns(self) -> tuple[str, ...]:
        """Return the columns of a staged row, in COPY's order."""
        return ("_txid", "_attempt_id", *self.column_types(), "_x", "_n")

    def fold(self) -> Composed:
        """Fold what is physically staged for an attempt (V1)."""
        return SQL(
            "SELECT coalesce(bit_xor(_x), 0) AS xor, coalesce(sum(_n), 0)::bigint AS count,"
            " count(*) AS rows FROM {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s"
        ).format(self.contribution)

    def clean(self) -> Composed:
        """Delete what an attempt staged that can never count."""
        return SQL("DELETE FROM {} WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s").format(
            self.contribution
        )

    # --- commit ----------------------------------------------------------------------------------

    def apply(self) -> Composed:
        """Add a first commit's contribution; tell how many keys it has and how many were written.

        ON CONFLICT … WHERE passes over a row with a txid that is not smaller without a word, so
        the two counts have to be compared (C3). Keys are sorted: it is faster, and the lock order.
        """
        return SQL(
            "WITH added AS MATERIALIZED ({added}), applied AS ("
            " INSERT INTO {target} AS target ({names}, _txid)"
            " SELECT {names}, %(txid)s FROM added ORDER BY {key}"
            " ON CONFLICT ({key}) DO UPDATE SET {combined}, _txid = excluded._txid"
            " WHERE target._txid < excluded._txid RETURNING 1)"
            " SELECT (SELECT count(*) FROM added) AS keys,"
            " (SELECT count(*) FROM applied) AS applied"
        ).format(
            added=self._folded_attempt("attempt_id"),
            target=self.target,
            names=_names(self.column_types()),
            key=_names(self.key),
            combined=SQL(", ").join(
                SQL("{} = {}").format(
                    Identifier(column.name), _fill(column.combine, column, added="excluded")
                )
                for column in self.columns
            ),
        )

    def changed_keys(self) -> Composed:
        """Collect the keys whose part differs between the replaced attempt and the new one."""
        return SQL(
            "CREATE TEMPORARY TABLE pg_temp.changed ON COMMIT DROP AS"
            " SELECT {key}, {pairs} FROM ({old}) AS old FULL JOIN ({new}) AS new ON {same_key}"
            " WHERE ({old_values}) IS DISTINCT FROM ({new_values})"
        ).format(
            key=SQL(", ").join(
                SQL("coalesce(new.{0}, old.{0}) AS {0}").format(Identifier(name))
                for name in self.key
            ),
            pairs=SQL(", ").join(
                SQL("old.{0} AS {1}, new.{0} AS {2}").format(
                    Identifier(column.name),
                    Identifier(f"old {column.name}"),
                    Identifier(f"new {column.name}"),
                )
                for column in self.columns
            ),
            old=self._folded_attempt("replaced_attempt"),
            new=self._folded_attempt("attempt_id"),
            same_key=self._same_key_as_record("old", "new"),
            old_values=_qualified("old", self._value_names()),
            new_values=_qualified("new", self._value_names()),
        )

    def swap(self) -> list[Composed]:
        """Put the new contribution in the old one's place, for the changed keys only.

        In order: work out each changed key's whole row, drop the keys whose last row went, write
        the others. What a key held before is what is *stored*, never what today's code would say.
        """
        return [self._work_out(), self._delete_vanished(), self._write()]

    def _work_out(self) -> Composed:
        """By inverse where every column has one, else from the kept contributions (H3)."""
        source = self._by_inverse() if self.is_invertible else self._from_contributions()
        return SQL("CREATE TEMPORARY TABLE pg_temp.swapped ON COMMIT DROP AS {}").format(source)

    def _by_inverse(self) -> Composed:
        return SQL(
            "SELECT {key}, {values}, {txid} AS _txid FROM pg_temp.changed AS changed {join}"
        ).format(
            key=_qualified("changed", self.key),
            values=SQL(", ").join(
                SQL("{} AS {}").format(_fill_swap(column, self.columns), Identifier(column.name))
                for column in self.columns
            ),
            txid=self._greatest_txid_left(),
            join=SQL("LEFT JOIN {} AS target ON {}").format(
                self.target, self._same_key("changed", "target")
            ),
        )

    def _greatest_txid_left(self) -> Composed:
        """A row's txid is the greatest that it holds; it sinks when that one leaves (C3)."""
        return SQL(
            "CASE WHEN {added} > 0 THEN greatest(target._txid, %(txid)s)"
            " WHEN target._txid > %(txid)s THEN target._txid"
            " ELSE (SELECT max(kept._txid) FROM ({kept}) AS kept WHERE {same_key}) END"
        ).format(
            added=SQL("coalesce({}, 0)").format(Identifier("changed", f"new {ROW_COUNT.name}")),
            kept=self._kept(),
            same_key=self._same_key("changed", "kept"),
        )

    def _from_contributions(self) -> Composed:
        return SQL(
            "SELECT {key}, {folds}, max(kept._txid) AS _txid"
            " FROM pg_temp.changed AS changed LEFT JOIN ({kept}) AS kept ON {same_key}"
            " GROUP BY {key}"
        ).format(
            key=_qualified("changed", self.key),
            folds=SQL(", ").join(
                SQL("{} AS {}").format(
                    SQL(column.fold).format(value=Identifier("kept", column.name)),
                    Identifier(column.name),
                )
                for column in self.columns
            ),
            kept=self._kept(),
            same_key=self._same_key("changed", "kept"),
        )

    def _kept(self) -> Composed:
        """Every committed contribution of this state; the ledger's headers already name the new."""
        return SQL(
            "SELECT staged.* FROM {contribution} AS staged"
            " JOIN reliability.contribution AS header ON header.topology = {topology}"
            " AND header.state = {state} AND header.txid = staged._txid"
            " AND header.attempt_id = staged._attempt_id"
        ).format(
            contribution=self.contribution,
            topology=Literal(self.topology),
            state=Literal(self.state.name),
        )

    def _delete_vanished(self) -> Composed:
        return SQL(
            "DELETE FROM {} AS target USING pg_temp.swapped AS swapped"
            " WHERE {} AND coalesce(swapped._rows, 0) = 0"
        ).format(self.target, self._same_key("target", "swapped"))

    def _write(self) -> Composed:
        return SQL(
            "INSERT INTO {target} ({names}, _txid)"
            " SELECT {names}, _txid FROM pg_temp.swapped WHERE _rows > 0 ORDER BY {key}"
            " ON CONFLICT ({key}) DO UPDATE SET {values}, _txid = excluded._txid"
        ).format(
            target=self.target,
            names=_names(self.column_types()),
            key=_names(self.key),
            values=SQL(", ").join(
                SQL("{0} = excluded.{0}").format(Identifier(name)) for name in self._value_names()
            ),
        )

    @staticmethod
    def forget_swap() -> Composable:
        """Drop the working tables, so that the next state of the same commit can make its own."""
        return SQL("DROP TABLE pg_temp.changed, pg_temp.swapped")

    # --- pieces ----------------------------------------------------------------------------------

    def _folded_attempt(self, parameter: str) -> Composed:
        """One attempt's staged rows, one row a key: staging may hold a key in two partitions."""
        return SQL(
            "SELECT {key}, {folds} FROM {contribution}"
            " WHERE _txid = %(txid)s AND _attempt_id = %({attempt})s GROUP BY {key}"
        ).format(
            key=_names(self.key),
            folds=SQL(", ").join(
                SQL("{} AS {}").format(
                    SQL(column.fold).format(value=Identifier(column.name)),
                    Identifier(column.name),
                )
                for column in self.columns
            ),
            contribution=self.contribution,
            attempt=SQL(parameter),
        )

    def _same_key(self, one: str, other: str) -> Composed:
        # NULL is a key like any other. Written so that Postgres finds each key by the index;
        # IS NOT DISTINCT FROM would read the whole table for each.
        return SQL(" AND ").join(
            SQL("({0} = {1} OR ({0} IS NULL AND {1} IS NULL))").format(
                Identifier(one, name), Identifier(other, name)
            )
            for name in self.key
        )

    def _same_key_as_record(self, one: str, other: str) -> Composed:
        # A FULL JOIN needs one sortable comparison. Records compare NULL fields as equal; the
        # cast keeps Postgres from comparing field by field.
        return SQL("ROW({})::record = ROW({})::record").format(
            _qualified(one, self.key), _qualified(other, self.key)
        )

    def _value_names(self) -> list[str]:
        return [column.name for column in self.columns]


def _names(names: Iterable[str]) -> Composed:
    return SQL(", ").join(Identifier(name) for name in names)


def _qualified(table: str, names: Iterable[str]) -> Composed:
    return SQL(", ").join(Identifier(table, name) for name in names)


def _fill(template: str, column: Column, **aliases: str) -> Composed:
    text = template
    for name, alias in aliases.items():
        text = text.replace(f"{name}.", f"{alias}.")
    return SQL(text).format(value=Identifier(column.name))


def _fill_swap(column: Column, columns: tuple[Column, ...]) -> Composed:
    """Fill a swap template: target.{v} is stored, old.{v} and new.{v} stand in `changed`."""
    assert column.swap is not None
    hidden = f"_{column.name}_count"
    count = hidden if any(other.name == hidden for other in columns) else column.name

    def term(alias: str, name: str) -> Composed:
        place = (
            Identifier("target", name)
            if alias == "target"
            else (Identifier("changed", f"{alias} {name}"))
        )
        return SQL("coalesce({}, 0)").format(place)

    text = column.swap
    pieces: dict[str, Composable] = {}
    for alias in ("target", "old", "new"):
        for slot, name in (("value", column.name), ("count", count)):
            text = text.replace(f"{alias}.{{{slot}}}", f"{{{alias}_{slot}}}")
            pieces[f"{alias}_{slot}"] = term(alias, name)
    return SQL(text).format(**pieces)
