"""The SQL that makes a state's tables what its definition says.

If somebody has altered a table, a person runs it: nothing here repairs a table by itself.
`reliability alter` runs it for a changed definition (alteration.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from psycopg2.sql import SQL, Composable, Composed, Identifier

from reliability.core.names import fitted
from reliability.core.types import canonical
from reliability.states.tables import StateTables, TableColumn, column_definitions

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction, Row

Columns = Mapping[str, TableColumn]


class AlteredTables(NamedTuple):
    """How somebody has altered a state's tables, and what a person has to do."""

    problems: str
    remedy: str


def inspect(tx: DatabaseTransaction, tables: StateTables) -> AlteredTables | None:
    """Compare the two tables, as the catalogs show them, with the definition; None if they match.

    Additional columns of the user in the target are allowed if a row can be inserted without them.
    """
    problems: list[str] = []
    statements: list[Composable] = []
    lost: list[str] = []
    logged: list[Composable] = []
    target = tx.all("table_columns", table=tables.target_name)
    staged, own = tables.contribution_name, tables.contribution_columns()
    contribution = tx.all("table_columns", table=staged)
    for name, table, actual, want in (
        (tables.target_name, tables.target, target, tables.target_columns()),
        (staged, tables.contribution, contribution, own),
    ):
        if differing := _differences(actual, want):
            problems.append(f"table {name}: {', '.join(differing)}")
            if tables.is_view and table == tables.target:
                continue
            if actual:
                statements += _repair(table, actual, want)
            elif table == tables.target and tables.keeps_contributions:
                statements += _create_target(tx, tables)
            else:
                lost.append(name)
        stays = not (tables.is_view and table == tables.target)  # what is no view makes way
        if stays and any(column["is_lost"] for column in actual):
            problems.append(f"table {name} is unlogged: a crash of the server would empty it")
            logged.append(SQL("ALTER TABLE {} SET LOGGED").format(table))
    is_other = is_of_other_kind(tables, target)
    if is_other and not tables.is_view:
        problems.append(f"{tables.target_name} is no table")
        lost.append(tables.target_name)
    elif is_other:
        problems.append(f"{tables.target_name} is no view any more, so no commit changes it")
    elif tables.is_view and target and not _asks_headers(tx, tables):
        problems.append(f"view {tables.target_name} does not ask the ledger which rows count")
    for problem, restored in () if tables.is_view else _collations(tables, target, contribution):
        problems.append(f"table {tables.target_name}: {problem}")
        statements.append(restored)
    add_key = tables.add_key()
    unique = tx.all("unique_keys", table=tables.target_name)
    keys = [key["columns"] for key in unique if key["is_usable"]]
    for key in unique:
        if add_key is not None and key["is_deferrable"] and key["columns"] == sorted(tables.key):
            problems.append(f"unique key {key['name']} of {tables.target_name} is deferrable")
            drop = "ALTER TABLE {target} DROP CONSTRAINT {name}"
            statements.append(tables.sql(drop, name=Identifier(key["name"])))
    if target and add_key is not None and sorted(tables.key) not in keys:
        problems.append(f"table {tables.target_name} has no unique key over {list(tables.key)}")
        statements.append(add_key)
    if not problems:
        return None
    if tables.is_view and len(problems) > len(logged):
        statements = _create_view(tx, tables, target, statements)
    if lost:
        return AlteredTables("; ".join(problems), f"{' and '.join(lost)}: {_BACKUP}.")
    script = "".join(f"{tx.text_of(statement)};\n" for statement in [*statements, *logged])
    old_values = ""
    if statements:
        old_values = _old_values(tables, are_staged=bool(_differences(contribution, own)))
    return AlteredTables(
        "; ".join(problems),
        "restore the table from a backup, or pause the topology, let txids in flight commit, and "
        f"run in the database of the state:\nBEGIN;\n{script}COMMIT;\n{old_values}",
    )


_NONE = "-"  # the collation of a type that has none
_BACKUP = "rename it back, or restore it from a backup; nothing else has its rows"


def _create_target(tx: DatabaseTransaction, tables: StateTables) -> list[Composable]:
    """Create the target, without the indexes of other tables; a repair writes its rows."""
    columns = column_definitions(tables.target_columns())
    created = tables.sql("CREATE TABLE {target} ({columns})", columns=columns)
    return [*_create_schema(tx, tables), created, *filter(None, [tables.add_key()])]


def _create_schema(tx: DatabaseTransaction, tables: StateTables) -> list[Composable]:
    """Create the schema of the target if somebody has dropped it."""
    exists = tx.one("schema_exists", schema=tables.state.target[0])["exists"]
    return [] if exists else [tables.create_schema()]


def _create_view(
    tx: DatabaseTransaction,
    tables: StateTables,
    target: Sequence[Row],
    statements: Sequence[Composable],
) -> list[Composable]:
    """Create the view, after the statements that mend what it reads.

    What is in its place makes way; a view of the same columns stays, with its grants.
    """
    make_way: list[Composable] = []
    want = tables.target_columns()
    if is_of_other_kind(tables, target):
        make_way = [_rename(tables)]
    elif statements or [c["name"] for c in target] != [*want] or _differences(target, want):
        make_way = [tables.drop_view()]
    return [*_create_schema(tx, tables), *make_way, *statements, tables.create_view()]


def is_of_other_kind(tables: StateTables, target: Sequence[Row]) -> bool:
    """Say whether something else is in the target's place: no table, or no view where it is one.

    :param target: its columns, of the query `table_columns`
    """
    kind = "is_in_view" if tables.is_view else "is_in_table"
    return any(not column[kind] for column in target)


def _asks_headers(tx: DatabaseTransaction, tables: StateTables) -> bool:
    return bool(tx.one("view_of_what_counts", table=tables.target_name)["asks_headers"])


def _old_values(tables: StateTables, *, are_staged: bool) -> str:
    """Say how what the statements restore gets its values.

    A replay of a kept contribution only adds new − old to a row, whatever the row lacks.
    """
    steps = []
    if are_staged or (tables.state.is_append and not tables.is_view):
        steps.append("replay the txids that wrote them")
    if tables.keeps_contributions:
        steps.append(f"`reliability verify {tables.topology} --repair --yes --reason '…'`")
    if tables.is_view and not steps:
        return ""
    todo = ", then ".join(steps)
    return f"What is restored lacks its old values. Before the next commit: {todo or _BACKUP}."


def _rename(tables: StateTables) -> Composed:
    """Keep the table that is where the view should be; its rows may be a person's own."""
    aside = Identifier(fitted(f"{tables.state.target[1]}_replaced"))
    return tables.sql("ALTER TABLE {target} RENAME TO {aside}", aside=aside)


def _differences(actual: Sequence[Row], want: Columns) -> list[str]:
    columns = {column["name"]: column for column in actual}
    if not columns:
        return ["it does not exist"]
    problems = [f"column {name} is missing" for name in want if name not in columns]
    for name, column in columns.items():
        if name not in want:
            if column["is_required"]:
                problems.append(f"column {name} is unknown, and every row needs a value for it")
        elif column["type"] != canonical(want[name].type):
            problems.append(f"column {name} is {column['type']} instead of {want[name].type}")
        elif column["is_generated"] != want[name].is_generated:
            kind = "generated" if want[name].is_generated else "a plain column"
            problems.append(f"column {name} is not {kind}")
    return problems


def _collations(
    tables: StateTables, target: Sequence[Row], contribution: Sequence[Row]
) -> Iterator[tuple[str, Composed]]:
    """Yield what is wrong with a key of another collation than its contributions; what mends it.

    Postgres does not compare the two, and a collation may take texts that differ for equal.
    """
    kept = {c["name"]: c["collation"] for c in contribution if c["name"] in tables.key}
    for name, collation in ((column["name"], column["collation"]) for column in target):
        if collation != kept.get(name, collation) and _NONE not in (collation, kept[name]):
            restored = tables.sql(
                "ALTER TABLE {target} ALTER COLUMN {name} TYPE {type} COLLATE {collation}",
                name=Identifier(name),
                type=SQL(tables.target_columns()[name].type),
                collation=SQL(kept[name]),
            )
            yield f"column {name} has the collation {collation} instead of {kept[name]}", restored


def _repair(table: Identifier, actual: Sequence[Row], want: Columns) -> list[Composed]:
    have = {
        column["name"]: TableColumn(column["type"], generated="?" if column["is_generated"] else "")
        for column in actual
        if column["name"] in want
    }
    optional = [
        SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(table, Identifier(c["name"]))
        for c in actual
        if c["is_required"] and c["name"] not in want
    ]
    return alter_table(table, have, want) + optional


def alter_table(table: Identifier, have: Columns, want: Columns) -> list[Composed]:
    """Return the statements that change some columns to others; empty if none differ.

    An added count is 0 in the rows that are there, as in an empty row, so that sums over it hold.
    """
    again = columns_made_anew(have, want)
    added = [
        name
        for name in sorted(want, key=lambda n: want[n].is_generated)
        if name not in have or name in again
    ]
    actions = [
        *[SQL("DROP COLUMN {}").format(Identifier(n)) for n in have if n not in want or n in again],
        *[
            SQL("ALTER COLUMN {} TYPE {}").format(Identifier(n), SQL(want[n].type))
            for n in _changed(have, want)
            if n not in again
        ],
        *[SQL("ADD COLUMN {}").format(want[n].definition(n, want[n].when_added)) for n in added],
    ]
    plain = [
        SQL("ALTER COLUMN {} DROP DEFAULT").format(Identifier(name))
        for name in added
        if want[name].has_default_when_added
    ]
    return [
        SQL("ALTER TABLE {} ").format(table) + SQL(", ").join(parts)
        for parts in (actions, plain)
        if parts
    ]


def columns_made_anew(have: Columns, want: Columns) -> list[str]:
    """Return the columns to drop and add: a new type would keep a generated column's expression."""
    return [n for n in _changed(have, want) if want[n].is_generated or have[n].is_generated]


def _changed(have: Columns, want: Columns) -> list[str]:
    return [
        name
        for name in want
        if name in have
        and (canonical(have[name].type), have[name].is_generated)
        != (canonical(want[name].type), want[name].is_generated)
    ]
