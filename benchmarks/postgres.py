"""The few things that the suite itself does in a database."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection
from psycopg2.extensions import cursor as Cursor
from psycopg2.sql import Composable

from benchmarks.job import Database


@contextmanager
def session(database: Database) -> Iterator[Connection]:
    with closing(psycopg2.connect(database.libpq, password=database.password)) as connection:
        yield connection


@contextmanager
def transaction(database: Database) -> Iterator[Cursor]:
    with session(database) as connection, connection, connection.cursor() as cursor:
        yield cursor


def execute(database: Database, *statements: str) -> None:
    with transaction(database) as cursor:
        for statement in statements:
            cursor.execute(statement)


def execute_alone(database: Database, statement: str | Composable) -> None:
    """Run a statement that no transaction may contain."""
    with session(database) as connection:
        connection.autocommit = True
        connection.cursor().execute(statement)


def load(database: Database, table: str, files: Sequence[str]) -> None:
    """Copy Parquet files into a table with the same columns."""
    from pyarrow import csv

    with transaction(database) as cursor:
        for path in files:
            for batch in batches(path):
                rows = io.BytesIO()
                csv.write_csv(batch, rows, csv.WriteOptions(include_header=False))
                rows.seek(0)
                cursor.copy_expert(f"COPY {table} FROM STDIN WITH CSV", rows)


def batches(path: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=100_000)
