"""The SQL that a person can run when a state's tables differ from its definition.

Nothing here changes a table by itself: only a person changes a table that has history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.state import State
from reliability.core.texts import as_json
from reliability.core.types import canonical, widens
from reliability.states.tables import StateTables, TableColumn

Columns = Mapping[str, TableColumn]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMigration:
    """Statements for one transaction; `leaves` describes what they cannot do."""

    statements: tuple[Composable, ...]
    leaves: str = ""

    def text(self, cursor: Any) -> str:
        """Return the script for a person to run; `cursor` quotes for the server."""
        statements = "".join(f"{s.as_string(cursor)};\n" for s in self.statements)
        return f"BEGIN;\n{statements}COMMIT;\n{self.leaves}".rstrip()


Found = tuple[str, TableMigration]
"""The differences of a state's tables, and their repair."""


# --- a changed definition ------------------------------------------------------------------------


def obstacle(old: State, new: State) -> str | None:
    """Return why ALTER TABLE cannot change one definition to the other, None if it can."""
    frames = [(s.kind, s.target, s.database, list(s.key), s.is_append) for s in (old, new)]
    if frames[0] != frames[1]:
        return "its kind, table, database or key differs"
    for name in old.values.keys() & new.values.keys():
        one, other = (_without_types(s.values[name].definition()) for s in (old, new))
        if one != other:
            return f"the stored values of {name} were aggregated in another way"
    have, want = (StateTables("", s).target_columns() for s in (old, new))
    for name in have.keys() & want.keys():
        if not want[name].is_generated and not _keeps(have[name].type, want[name].type):
            return f"column {name}: not every {have[name].type} value fits {want[name].type}"
    return None


def _without_types(definition: Mapping[str, Any]) -> dict[str, Any]:
    by = [name for name, _ in definition.get("by", ())]
    return {**definition, "type": None, "by": by}


def _keeps(old: str, new: str) -> bool:
    return canonical(old) == canonical(new) or widens(old, new)


def migration(topology: str, old: State, new: State) -> TableMigration:
    """Return the migration from one definition to another that has no `obstacle`."""
    before, after = StateTables(topology, old), StateTables(topology, new)
    have, want = before.target_columns(), after.target_columns()
    return TableMigration(
        statements=(
            *_alter(after.target, have, want),
            *_alter(
                after.contribution, before.contribution_columns(), after.contribution_columns()
            ),
            _redeclare(topology, old, new),
        ),
        leaves=_leaves(new, want.keys() - have.keys(), have.keys() - want.keys()),
    )


def _redeclare(topology: str, old: State, new: State) -> Composed:
    return SQL(
        "UPDATE reliability.state SET definition = {new}, definition_digest = {digest}"
        " WHERE topology = {topology} AND state = {state} AND definition_digest = {old}"
    ).format(
        new=Literal(as_json(new.definition())),
        digest=Literal(new.digest()),
        topology=Literal(topology),
        state=Literal(new.name),
        old=Literal(old.digest()),
    )


def _leaves(new: State, added: Iterable[str], dropped: Iterable[str]) -> str:
    notes = []
    if list(dropped):
        notes.append("The values of the dropped columns are lost.")
    if list(added) and new.cannot_replay(1, last=2) is None:
        notes.append(
            "The new columns do not contain the txids that have committed: replay all of these by "
            "clearing their runs; until then the columns contain only later txids."
        )
    elif list(added):
        notes.append(
            "The new columns do not contain the txids that have committed, and this kind of state "
            "cannot replay them: the columns will contain only later txids."
        )
    return " ".join(notes)


# --- a changed table -----------------------------------------------------------------------------


def inspect(tables: StateTables, *, target: Rows, contribution: Rows, keys: Rows) -> Found | None:
    """Return how the two tables differ from the definition, with the repair; None if they do not.

    Additional columns of the user in the target are allowed if a row can be inserted without them.

    :param target: the result of the query table_columns for the target
    :param contribution: the result of the query table_columns for the contributions
    :param keys: the result of the query unique_keys for the target
    """
    problems: list[str] = []
    statements: list[Composable] = []
    for name, table, actual, want in (
        (tables.target_name, tables.target, target, tables.target_columns()),
        (
            tables.contribution_name,
            tables.contribution,
            contribution,
            tables.contribution_columns(),
        ),
    ):
        if differing := _differences(actual, want):
            problems.append(f"table {name}: {', '.join(differing)}")
            statements += _repair(table, actual, want) if actual else []
    if target and not tables.state.is_append and not _has_key(tables, keys):
        problems.append(f"table {tables.target_name} has no unique key over {list(tables.key)}")
        statements.append(tables.add_key())
    if not problems:
        return None
    leaves = "A restored column does not have its old values: replay the txids that wrote them."
    return "; ".join(problems), TableMigration(statements=tuple(statements), leaves=leaves)


def _has_key(tables: StateTables, keys: Rows) -> bool:
    return any(key["columns"] == sorted(tables.key) for key in keys)


def _differences(actual: Rows, want: Columns) -> list[str]:
    found = {column["name"]: column for column in actual}
    if not found:
        return ["it does not exist"]
    problems = [f"column {name} is missing" for name in want if name not in found]
    for name, column in found.items():
        if name not in want:
            if column["is_required"]:
                problems.append(f"column {name} is unknown, and every row needs a value for it")
        elif column["type"] != canonical(want[name].type):
            problems.append(f"column {name} is {column['type']} instead of {want[name].type}")
        elif column["is_generated"] != want[name].is_generated:
            kind = "generated" if want[name].is_generated else "a plain column"
            problems.append(f"column {name} is not {kind}")
    return problems


def _repair(table: Identifier, actual: Rows, want: Columns) -> list[Composed]:
    rest = {True: " GENERATED", False: ""}
    have = {
        column["name"]: TableColumn(column["type"], rest[column["is_generated"]])
        for column in actual
        if column["name"] in want
    }
    optional = [
        SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(table, Identifier(c["name"]))
        for c in actual
        if c["is_required"] and c["name"] not in want
    ]
    return _alter(table, have, want) + optional


def _alter(table: Identifier, have: Columns, want: Columns) -> list[Composed]:
    """Return the ALTER TABLE that changes some columns to others; empty if none differ."""
    changed = [
        name
        for name in want
        if name in have
        and (canonical(have[name].type), have[name].is_generated)
        != (canonical(want[name].type), want[name].is_generated)
    ]
    # Changing the type of a generated column keeps its old expression, so it is added again.
    again = [n for n in changed if want[n].is_generated or have[n].is_generated]
    actions = [
        *[SQL("DROP COLUMN {}").format(Identifier(n)) for n in have if n not in want or n in again],
        *[
            SQL("ALTER COLUMN {} TYPE {}").format(Identifier(n), SQL(want[n].type))
            for n in changed
            if n not in again
        ],
        *[
            SQL("ADD COLUMN {} {}").format(Identifier(n), SQL(want[n].type + want[n].when_added))
            for n in sorted(want, key=lambda n: want[n].is_generated)
            if n not in have or n in again
        ],
    ]
    return [SQL("ALTER TABLE {} ").format(table) + SQL(", ").join(actions)] if actions else []
