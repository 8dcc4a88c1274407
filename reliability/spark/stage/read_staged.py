"""The rows that earlier steps of an attempt have staged, as the input of a later step.

The rows have their `_x` and `_n`. So a row that a later step loses or doubles shows in its states,
as if the step had read the batch itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reliability.core.attempt import Grant
from reliability.core.state import State
from reliability.core.types import read_as
from reliability.ledger.connection import LedgerConnection
from reliability.spark.stage.read_postgres import read_postgres
from reliability.states import attempt_table
from reliability.states.kinds import stored_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def staged_frame(
    spark: SparkSession,
    connection: LedgerConnection,
    topology: str,
    state: State,
    grant: Grant,
    types: Mapping[str, str],
) -> DataFrame:
    """Return what an attempt staged for a state: key, values, hidden counts, `_x` and `_n`.

    Types are those of the state's columns; uuid, jsonb, bytea and arrays are strings in Postgres's
    notation.

    :param connection: a session in the state's database
    :param types: of columns that are read in another type
    """
    tables = stored_state(topology, state)
    columns = tables.column_types() | {"_x": "bigint", "_n": "bigint"}
    parts = spark.sparkContext.defaultParallelism
    place = {"txid": grant.attempt.txid, "attempt_id": grant.attempt.attempt_id}
    with connection.transaction() as tx:
        tables = attempt_table.find_table(tx, tables, grant)
        queries = [
            tx.cursor.mogrify(
                tables.staged_part(list(columns)), place | {"part": n, "parts": parts}
            )
            for n in range(parts)
        ]
    read = {name: read_as(type_) for name, type_ in columns.items()} | {**types}
    schema = ", ".join(f"`{name}` {type_}" for name, type_ in read.items())
    return read_postgres(spark, connection.dsn, [query.decode() for query in queries], schema)
