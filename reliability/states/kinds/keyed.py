"""A state whose target has one row per key: its first commits, and how a change is compared.

To compare, the rows that a change can reach are saved by their keys before it, for replays,
rollbacks, repairs and dry runs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.aggregators import Count, Sum
from reliability.core.column import Column
from reliability.core.names import fitted
from reliability.states.compose import alias, aliased, assigned, fill, of, qualified, same_key
from reliability.states.kinds.stored import REACHED, Change, Effect, StoredState
from reliability.states.tables import BOOKKEEPING, TXID, TableColumn

_WAS_THERE = Identifier(" was there")
_IS_THERE = SQL("(target._txid IS NOT NULL)")


class KeyedState(StoredState):
    """A state whose values are combined: one row of the target per key."""

    def target_columns(self) -> dict[str, TableColumn]:
        return self.key_and_values() | {TXID: BOOKKEEPING[TXID]}

    def index_target(self) -> list[Composed]:
        return [self.add_key()]

    def add_key(self) -> Composed:
        """Make the target's key unique; NULL equals NULL there."""
        return self.sql("ALTER TABLE {target} ADD UNIQUE NULLS NOT DISTINCT ({key})")

    # --- a first commit --------------------------------------------------------------------------

    def add(self, change: Change) -> None:
        """Add the attempt's contribution, and record it if it is what was sealed and all is there.

        ON CONFLICT … WHERE silently skips a row whose txid is not smaller, so `record_contribution`
        compares how many keys there are and how many rows were written (C3). As a rule each staged
        row has a key of its own: only if fewer were written are the keys counted. They are sorted,
        because that is faster and is the lock order. Rows of which the seal has found no key twice
        are not folded: that would take a quarter of the commit (H10).
        """
        added = self.attempt_rows() if change.is_folded else self.folded_attempt()
        change.queue(
            self.sql(
                "WITH applied AS ({combine} WHERE target._txid < excluded._txid RETURNING 1),"
                " counted AS MATERIALIZED (SELECT (SELECT count(*) FROM applied) AS applied,"
                " (SELECT count(*) FROM {staged} WHERE {of_attempt}) AS staged)"
                " SELECT reliability.record_contribution(%(topology)s, %(state)s, %(txid)s,"
                " %(attempt_id)s, %(replaced_attempt)s, {is_kept}, staged,"
                " CASE WHEN applied = staged THEN staged"
                " ELSE (SELECT count(*) FROM ({added}) AS added) END, applied) FROM counted",
                added=added,
                combine=self.combine(added),
                is_kept=SQL("true" if self.keeps_contributions else "false"),
            )
        )

    def combine(self, added: Composed) -> Composed:
        """Write the rows of a query into the target, each combined with the row of its key."""
        changes: dict[str, Composable] = {
            column.name: fill(column.combine, target=of("target"), added=of("excluded"))
            for column in self.columns
        }
        return self.sql(
            "INSERT INTO {target} AS target ({written}, _txid)"
            " SELECT {written}, %(txid)s FROM ({added}) AS added ORDER BY {key}"
            " ON CONFLICT ({key}) DO UPDATE SET {changes}, _txid = excluded._txid",
            added=added,
            changes=assigned(changes | self.also_changed()),
        )

    def also_changed(self) -> dict[str, Composable]:
        """Return what else a commit sets in a row that is there."""
        return {}

    # --- what a change does to the rows ----------------------------------------------------------

    def remember(
        self,
        change: Change,
        keys: Composable,
        same_key: Callable[[Iterable[str], str, str], Composed] = same_key,
    ) -> int:
        """Save the rows as they are before the change, and return the number of the keys.

        :param keys: a query for the keys that the change can reach
        :param same_key: as in Effect
        """
        statement = self.sql(
            "CREATE TEMPORARY TABLE {reached} ON COMMIT DROP AS SELECT {touched},"
            " target._txid IS NOT NULL AS {was_there}, {before}"
            " FROM ({keys}) AS touched LEFT JOIN {target} AS target ON {same_key}",
            reached=REACHED,
            touched=qualified("touched", self.key),
            was_there=_WAS_THERE,
            before=aliased(
                {alias("before", n): Identifier("target", n) for n in self.state.values}
            ),
            keys=keys,
            same_key=same_key(self.key, "touched", "target"),
        )
        return change.run(statement)

    def count_changed_rows(self, effect: Effect) -> Composed:
        """Count them; `moved` are texts, in arrays: a function takes at most 100 arguments."""
        summed = [
            column
            for column in self.columns
            if isinstance(self.state.values.get(column.name), Count | Sum)
        ]
        return self._compared(
            effect,
            "SELECT count(*) FILTER (WHERE NOT {was_there} AND {is_there}) AS rows_added,"
            " count(*) FILTER (WHERE {was_there} AND {is_there} AND {differs}) AS rows_changed,"
            " count(*) FILTER (WHERE {was_there} AND NOT {is_there}) AS rows_removed,"
            " jsonb_strip_nulls(jsonb_object(ARRAY[{summed}]::text[], ARRAY[{moved}]::text[]))"
            " AS moved FROM {joined}",
            summed=SQL(", ").join(Literal(column.name) for column in summed),
            moved=SQL(", ").join(map(_moved, summed)),
        )

    def changed_rows(self, effect: Effect) -> Composed:
        return self._compared(
            effect,
            "SELECT CASE WHEN NOT {was_there} THEN 'added' WHEN NOT {is_there} THEN 'removed'"
            " ELSE 'changed' END AS change, {reached_key}, {values} FROM {joined}"
            " WHERE {was_there} IS DISTINCT FROM {is_there} OR {differs} ORDER BY {reached_key}",
            reached_key=qualified("reached", self.key),
            values=SQL(", ").join(
                SQL("{} AS {}, {} AS {}").format(
                    _before(name),
                    self._unlike_key(f"{name}_before"),
                    Identifier("target", name),
                    self._unlike_key(f"{name}_after"),
                )
                for name in self.state.values
            ),
        )

    def _unlike_key(self, name: str) -> Identifier:
        """Return a name for a column beside the key; a row as a dict has each name once."""
        name = fitted(name)
        return Identifier(name if name not in self.key else fitted(f"{name}_"))

    def _compared(self, effect: Effect, template: str, **parts: Composable) -> Composed:
        """Fill a template about the saved rows, joined with the rows as they are now."""
        return self.sql(
            template,
            was_there=_WAS_THERE,
            is_there=_IS_THERE,
            differs=SQL("ROW({}) IS DISTINCT FROM ROW({})").format(
                SQL(", ").join(map(_before, self.state.values)),
                qualified("target", self.state.values),
            ),
            joined=self.sql(
                "{reached} AS reached LEFT JOIN {target} AS target ON {same_key}",
                reached=REACHED,
                same_key=effect.same_key(self.key, "reached", "target"),
            ),
            **parts,
        )


def _before(name: str) -> Identifier:
    return Identifier(alias("before", name))


def _moved(column: Column) -> Composed:
    """Subtract the sums of the values that differ: with an Infinity in both, nothing is left."""
    now, before = Identifier("target", column.name), _before(column.name)
    added_up = "coalesce(sum({}) FILTER (WHERE {} IS DISTINCT FROM {}), 0)"
    return SQL(f"nullif({added_up} - {added_up}, 0)::text").format(
        *(_added_up(column, now), now, before), *(_added_up(column, before), now, before)
    )


def _added_up(column: Column, value: Composable) -> Composable:
    """Return a value in a type that sums exactly and never overflows.

    The sum of a bigint is a numeric already; a float is summed as its shortest decimal.
    """
    return SQL("{}::text::numeric").format(value) if column.is_rounded else value
