"""Write the rows that a replay or a rollback changes, or would change, as a stream of any length.

Columns: `topology, txid, state, change, row`. The row is one JSON value with its key and each value
before and after, because every state has its own columns.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from psycopg2.sql import SQL, Composed, Identifier

from reliability.core.errors import NotPossible, RightMissing, UnexpectedAnswer
from reliability.core.plan import PlannedChange
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.queries import queries
from reliability.transaction.topology.databases import TopologyDatabases

COLUMNS = ("topology", "txid", "state", "change", "row")
_TABLE = re.compile(r"^([^.]+)\.([^.]+)$")

Write = Callable[[Sequence[Row]], None]


class DifferentRows:
    """Passes the different rows of each state to a writer, and counts them.

    :param txids: ignore changes of other txids, which a commit may include; None ignores none
    """

    def __init__(self, topology: str, write: Write) -> None:
        self.count = 0
        self.txids: frozenset[int] | None = None
        self._topology = topology
        self._write = write

    def observe(self, tx: DatabaseTransaction, key: PlannedChange, different: Composed) -> None:
        """Write the rows of one change; a DifferenceObserver."""
        if self.txids is not None and key.txid not in self.txids:
            return
        tx.run(SQL(queries()["open_different_rows"]).format(rows=different), **key)
        while rows := tx.all("next_different_rows"):
            self._write(rows)
            self.count += len(rows)
        tx.run("close_different_rows")


@contextmanager
def rows_into(
    connection: LedgerConnection, topology: str, file: Path | None, table: str
) -> Iterator[DifferentRows]:
    """Write into a file or a table of the ledger's database, all rows or none."""
    if file is not None:
        with _into_file(file) as write:
            yield DifferentRows(topology, write)
    else:
        _append_to(connection, table, BytesIO())  # before anything changes
        with _temporary_folder() as folder:
            spool = folder / "rows.csv"
            with _into_file(spool, _OTHER_TMPDIR) as write:
                yield DifferentRows(topology, write)
            # Its own transaction: the one that found the rows was rolled back.
            with spool.open("rb") as lines:
                next(lines)  # the names of the columns
                _append_to(connection, table, lines)


def _append_to(connection: LedgerConnection, table: str, lines: IO[bytes]) -> None:
    """Append lines of CSV to a table, which is created if needed.

    :raises NotPossible: it does not take them
    """
    name = Identifier(*table.split("."))
    try:
        with connection.transaction() as tx:
            tx.run(SQL(queries()["create_difference_table"]).format(table=name))
            copy = SQL(queries()["copy_different_rows"]).format(table=name)
            tx.copy(tx.text_of(copy), lines)
    except (RightMissing, UnexpectedAnswer) as error:
        raise NotPossible(
            f"no rows can be written into {table}: {error.what}",
            "name another table, which need not exist, in a schema that does.",
        ) from error


def check_observable(connection: LedgerConnection, topology: str) -> None:
    """Check that rows can be compared while a change is made: all states are in one database.

    :raises NotPossible: they are in several
    """
    with TopologyDatabases.of(connection, topology) as databases:
        if databases.others:
            raise NotPossible(
                f"the states of {topology} are in several databases, where rows are compared only "
                "in a dry run",
                "add --dry-run first, then repeat it without --diff.",
            )


def check_target(file: Path | None, table: str) -> None:
    """Check before Spark runs that the rows can be written there.

    :raises ValueError: they cannot
    """
    if file is not None and table:
        raise ValueError("use either --diff or --diff-table")
    if file is not None and file.suffix not in _FORMATS:
        raise ValueError(f"--diff writes {', '.join(_FORMATS)}, not {file.name}")
    if file is not None and not file.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {file.absolute().parent}")
    if file is not None and file.is_dir():
        raise ValueError(f"--diff names a folder, {file}")
    if table and not _TABLE.match(table):
        raise ValueError(f"--diff-table must be schema.table, not {table}")


# --- files ---------------------------------------------------------------------------------------


_OTHER_FILE = "name a file in another folder."
_OTHER_TMPDIR = "set TMPDIR to another folder."


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with ExitStack() as opened:
        with _refusing("a temporary folder", _OTHER_TMPDIR):
            folder = opened.enter_context(tempfile.TemporaryDirectory())
        yield Path(folder)


@contextmanager
def _into_file(path: Path, remedy: str = _OTHER_FILE) -> Iterator[Write]:
    """Replace the file in one step when everything is written.

    :raises NotPossible: it cannot be made, or its disk is full
    """
    draft, opened = path.with_name(f".{path.name}.draft"), ExitStack()
    try:
        with _refusing(path, remedy):
            write = opened.enter_context(_FORMATS[path.suffix](draft))
        yield _refusing(path, remedy)(write)
        with _refusing(path, remedy):
            opened.close()
            draft.replace(path)
    finally:
        with suppress(OSError):  # it cannot be written, either
            opened.close()
        draft.unlink(missing_ok=True)


@contextmanager
def _refusing(path: Path | str, remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"no rows can be written into {path}: {error.strerror or error}"
        raise NotPossible(what, remedy) from error


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        yield lambda rows: writer.writerows([row[name] for name in COLUMNS] for row in rows)


@contextmanager
def _jsonl(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(map(_json_line, rows))


def _json_line(row: Row) -> str:
    # The row is already JSON; parsing it would round its numbers.
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
