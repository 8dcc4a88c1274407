"""How a state's definition differs from the one in the ledger, and the SQL that takes the new one.

History stays as it is: a contribution that was staged before a value existed has NULL or 0 there,
which adds nothing. A replay of its txid stages it anew, with the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.aggregators import Upsert
from reliability.core.state import State
from reliability.core.types import canonical, widens
from reliability.states.compose import aliased
from reliability.states.migration import alter_table, columns_made_anew
from reliability.states.tables import StateTables


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state as the ledger has it, and as the code has it."""

    old: StateTables
    new: StateTables

    def differences(self) -> list[str]:
        """Return what differs, for a person; never empty."""
        old, new = self.old.state, self.new.state
        differing = [
            f"{what}: {before or 'none'} becomes {after or 'none'}"
            for what, before, after in (
                ("kind", old.kind.value, new.kind.value),
                ("table", self.old.target_name, self.new.target_name),
                ("database", old.database or "the ledger's", new.database or "the ledger's"),
                ("key", _key(old), _key(new)),
                ("readers' rows", _readers_rows(old), _readers_rows(new)),
            )
            if before != after
        ]
        for name in {**old.values, **new.values}:
            before, after = old.values.get(name), new.values.get(name)
            if before is None:
                differing.append(f"value {name} is added: {after}")
            elif after is None:
                differing.append(f"value {name} is removed: {before}")
            elif before.definition() != after.definition():
                differing.append(f"value {name}: {before} becomes {after}")
        return differing or ["the values have another order"]

    def obstacle(self) -> str | None:
        """Return why the tables cannot be altered to the new definition, None if they can."""
        old, new = self.old.state, self.new.state
        if old.as_view != new.as_view:
            return "a table does not become a view, nor a view a table"
        frames = [(s.kind, s.target, s.database, _key(s), s.is_append) for s in (old, new)]
        if frames[0] != frames[1]:
            return "its kind, table, database or key differs"
        have, want = self.old.target_columns(), self.new.target_columns()
        if new.as_view and list(want.items())[: len(have)] != list(have.items()):
            return "its target is a view, which takes new columns only after the others"
        for name in old.values.keys() & new.values.keys():
            one, other = (_without_types(s.values[name].definition()) for s in (old, new))
            if one != other:
                return f"the stored values of {name} were aggregated in another way"
        orders = [_order_of_upserts(state) for state in (old, new)]
        if all(orders) and orders[0] != orders[1]:
            return "the stored rows of its Upserts were chosen by another order"
        for name in have.keys() & want.keys():
            narrow, wide = have[name].type, want[name].type
            keeps = canonical(narrow) == canonical(wide) or widens(narrow, wide)
            if not keeps and not want[name].is_generated:
                return f"column {name}: not every {narrow} value is the same as {wide}"
        return None

    def statements(self) -> list[Composable]:
        """Return the statements that change the tables, if there is no obstacle.

        Who verifies holds the contributions before the target is read: in the other order, both
        would wait for each other.
        """
        contributions = self.old.contribution_columns(), self.new.contribution_columns()
        contribution = alter_table(self.new.contribution, *contributions)
        if self.new.is_view:
            return [*contribution, self.new.create_view()]
        targets = self.old.target_columns(), self.new.target_columns()
        return [*contribution, *alter_table(self.new.target, *targets)]

    def dropped_values(self) -> list[str]:
        return [name for name in self.old.state.values if name not in self.new.state.values]

    def dropped_columns(self) -> list[str]:
        """Return the columns of the target that are dropped, or dropped and made anew."""
        have, want = self.old.target_columns(), self.new.target_columns()
        return [*(n for n in have if n not in want), *columns_made_anew(have, want)]

    def retyped_columns(self) -> list[str]:
        """Return the columns of the target that get another type in place."""
        have, want = self.old.target_columns(), self.new.target_columns()
        return [
            name
            for name in have.keys() & want.keys()
            if not (have[name].is_generated or want[name].is_generated)
            and canonical(have[name].type) != canonical(want[name].type)
        ]


def count_values(tables: StateTables, values: Iterable[str]) -> Composed:
    counted = aliased({name: SQL("count({})").format(Identifier(name)) for name in values})
    return tables.sql("SELECT {counted} FROM {target}", counted=counted)


def _readers_rows(state: State) -> str:
    return "a view" if state.as_view else "a table"


def _key(state: State) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in state.key.items())


def _without_types(definition: Mapping[str, Any]) -> dict[str, Any]:
    by = [name for name, _ in definition.get("by", ())]
    return {**definition, "type": None, "by": by}


def _order_of_upserts(state: State) -> list[str]:
    upserts = [value for value in state.values.values() if isinstance(value, Upsert)]
    return list(upserts[0].by) if upserts else []
