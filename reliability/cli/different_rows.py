"""The rows that a dry run finds different: written while they stream by, millions of them too.

`topology, txid, state, change, row`: the row is one JSON value with its key, and each value before
and after, because every state has columns of its own.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reliability.core.plan import ChangeKey
    from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
    from reliability.states.kinds import StoredState

COLUMNS = ("topology", "txid", "state", "change", "row")
_TABLE = re.compile(r"^([^.]+)\.([^.]+)$")

Write = Callable[[Sequence["Row"]], None]
DiffFile = Annotated[
    Path | None,
    typer.Option(
        "--diff",
        metavar="FILE",
        help="Of a dry run: write each row that would change, as .csv, .jsonl or .parquet.",
    ),
]
DiffTable = Annotated[
    str,
    typer.Option(metavar="SCHEMA.TABLE", help="The same into a table of the ledger's database."),
]


class DifferentRows:
    """Writes the rows of each state, and counts them."""

    def __init__(self, topology: str, write: Write) -> None:
        self.count = 0
        self._topology = topology
        self._write = write

    def write(self, tx: DatabaseTransaction, state: StoredState, key: ChangeKey) -> None:
        """Write the rows of one change; a DifferenceObserver."""
        for rows in self._read(tx, state, key):
            self._write(rows)
            self.count += len(rows)

    def _read(
        self, tx: DatabaseTransaction, state: StoredState, key: ChangeKey
    ) -> Iterator[Sequence[Row]]:
        from psycopg2.sql import SQL

        from reliability.ledger.queries import queries

        statement = SQL(queries()["open_different_rows"]).format(rows=state.changed_rows())
        tx.run(
            statement,
            topology=self._topology,
            state=state.name,
            txid=key.txid,
            attempt_id=key.attempt_id,
        )
        while rows := tx.all("next_different_rows"):
            yield rows
        tx.run("close_different_rows")


@contextmanager
def rows_into(
    connection: LedgerConnection, topology: str, file: Path | None, table: str
) -> Iterator[DifferentRows]:
    """Write into a file, or a table of the ledger's database; all of it, or nothing."""
    if file is not None:
        with _into_file(file) as write:
            yield DifferentRows(topology, write)
    else:
        with tempfile.NamedTemporaryFile("w+", newline="", encoding="utf-8") as spool:
            yield DifferentRows(topology, _csv_lines(spool))
            spool.flush()
            # A transaction of its own: the one that found the rows was rolled back.
            _copy(connection, table, Path(spool.name))


def check_target(file: Path | None, table: str) -> None:
    """Say at once, and not after Spark has run, that it cannot be written there."""
    if file is not None and table:
        raise typer.BadParameter("--diff or --diff-table, one of them")
    if file is not None and file.suffix not in _FORMATS:
        raise typer.BadParameter(f"--diff writes {', '.join(_FORMATS)}, and not {file.name}")
    if file is not None and not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.absolute().parent}")
    if table and not _TABLE.match(table):
        raise typer.BadParameter(f"--diff-table is written schema.table, and not {table}")


# --- files ---------------------------------------------------------------------------------------


@contextmanager
def _into_file(path: Path) -> Iterator[Write]:
    """Replace the file in one step, once all is written."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with _FORMATS[path.suffix](draft) as write:
            yield write
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(COLUMNS)
        yield _csv_lines(file)


def _csv_lines(file: IO[str]) -> Write:
    writer = csv.writer(file)
    return lambda rows: writer.writerows([row[name] for name in COLUMNS] for row in rows)


@contextmanager
def _jsonl(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(map(_json_line, rows))


def _json_line(row: Row) -> str:
    # The row is JSON already; read and written again, its numbers would be rounded.
    *place, last = COLUMNS
    head = json.dumps({name: row[name] for name in place}, ensure_ascii=False)
    return f'{head[:-1]}, "{last}": {row[last]}}}\n'


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {name: pa.int64() if name == "txid" else pa.string() for name in COLUMNS}
    schema = pa.schema(list(types.items()))
    with pq.ParquetWriter(path, schema) as writer:
        yield lambda rows: writer.write_table(
            pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        )


_FORMATS: dict[str, Callable[[Path], Any]] = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}


# --- a table -------------------------------------------------------------------------------------


def _copy(connection: LedgerConnection, table: str, path: Path) -> None:
    from psycopg2.sql import SQL, Identifier

    from reliability.ledger.queries import queries

    name = Identifier(*table.split("."))
    with connection.transaction() as tx, path.open("rb") as spool:
        tx.run(SQL(queries()["create_difference_table"]).format(table=name))
        copy = SQL(queries()["copy_different_rows"]).format(table=name)
        tx.copy(copy.as_string(tx.cursor), spool)
