"""What a person would run when a state's tables are not what its definition says.

Nothing here changes a table by itself: a table with history is a person's to change.
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
class Migration:
    """Statements for one transaction, and what they cannot do."""

    statements: tuple[Composable, ...]
    leaves: str = ""

    def text(self, cursor: Any) -> str:
        """Return it as a person runs it; `cursor` knows how the server quotes."""
        statements = "".join(f"{s.as_string(cursor)};\n" for s in self.statements)
        return f"BEGIN;\n{statements}COMMIT;\n{self.leaves}".rstrip()


Found = tuple[str, Migration]


# --- a changed definition ------------------------------------------------------------------------


def obstacle(old: State, new: State) -> str | None:
    """Return why no ALTER TABLE leads from one definition to the other, None if some do."""
    frames = [(s.kind, s.target, s.database, list(s.key), s.is_append) for s in (old, new)]
    if frames[0] != frames[1]:
        return "its kind, table, database or key is another"
    for name in old.values.keys() & new.values.keys():
        one, other = (_without_types(s.values[name].definition()) for s in (old, new))
        if one != other:
            return f"what {name} held so far was aggregated in another way"
    have, want = (StateTables("", s).target_columns() for s in (old, new))
    for name in have.keys() & want.keys():
        if not want[name].is_generated and not _keeps(have[name].type, want[name].type):
            return f"column {name}: not every {have[name].type} is a {want[name].type}"
    return None


def _without_types(definition: Mapping[str, Any]) -> dict[str, Any]:
    by = [name for name, _ in definition.get("by", ())]
    return {**definition, "type": None, "by": by}


def _keeps(old: str, new: str) -> bool:
    return canonical(old) == canonical(new) or widens(old, new)


def migration(topology: str, old: State, new: State) -> Migration:
    """Return what turns the tables of one definition into those of another; see `obstacle`."""
    before, after = StateTables(topology, old), StateTables(topology, new)
    have, want = before.target_columns(), after.target_columns()
    return Migration(
        statements=(
            *_alter(after.target, have, want),
            *_alter(
                after.contribution, before.contribution_columns(), after.contribution_columns()
            ),
            _declare_anew(topology, old, new),
        ),
        leaves=_leaves(new, want.keys() - have.keys(), have.keys() - want.keys()),
    )


def _declare_anew(topology: str, old: State, new: State) -> Composed:
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
    said = []
    if list(dropped):
        said.append("What the dropped columns held is lost.")
    if list(added) and new.cannot_replay(1, last=2) is None:
        said.append(
            "The new columns know nothing of the txids that have committed: replay all of these, "
            "by clearing their runs; until then the columns hold the later txids alone."
        )
    elif list(added):
        said.append(
            "The new columns know nothing of the txids that have committed, and this kind of "
            "state cannot replay them: they will hold the later txids alone."
        )
    return " ".join(said)


# --- a changed table -----------------------------------------------------------------------------


def inspect(tables: StateTables, *, target: Rows, contribution: Rows, keys: Rows) -> Found | None:
    """Say how the two tables differ from what they should be and what repairs them, None if fine.

    Columns of the user's own in the target are no difference, as long as a row can be inserted
    without them.

    :param target: what the query table_columns found, and so `contribution`
    :param keys: what the query unique_keys found of the target
    """
    said: list[str] = []
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
            said.append(f"table {name}: {', '.join(differing)}")
            statements += _repair(table, actual, want) if actual else []
    if target and not tables.state.is_append and not _has_key(tables, keys):
        said.append(f"table {tables.target_name} has no unique key over {list(tables.key)}")
        statements.append(tables.add_key())
    if not said:
        return None
    leaves = "What a lost column held does not come back with it: replay the txids that wrote it."
    return "; ".join(said), Migration(statements=tuple(statements), leaves=leaves)


def _has_key(tables: StateTables, keys: Rows) -> bool:
    return any(key["columns"] == sorted(tables.key) for key in keys)


def _differences(actual: Rows, want: Columns) -> list[str]:
    found = {column["name"]: column for column in actual}
    if not found:
        return ["it is gone"]
    said = [f"column {name} is missing" for name in want if name not in found]
    for name, column in found.items():
        if name not in want:
            if column["is_required"]:
                said.append(f"column {name} is unknown, and no row can be without it")
        elif column["type"] != canonical(want[name].type):
            said.append(f"column {name} is {column['type']} instead of {want[name].type}")
        elif column["is_generated"] != want[name].is_generated:
            kind = "generated" if want[name].is_generated else "a plain column"
            said.append(f"column {name} is not {kind}")
    return said


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
    """Return ALTER TABLE statements that lead from some columns to others, none if none differ."""
    changed = [
        name
        for name in want
        if name in have
        and (canonical(have[name].type), have[name].is_generated)
        != (canonical(want[name].type), want[name].is_generated)
    ]
    # A generated column keeps what it generated before when its type changes; a new one does not.
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
