"""Rows as the final stage of Spark hands them to a StageTask, made without Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from reliability.core.types import base_type
from reliability.deployment.lazy import pa
from reliability.states.digest import DIGEST
from reliability.states.tables import StateTables


def spark_batch(tables: StateTables, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Make one Arrow batch; a row has a value for each staged column, otherwise it is NULL."""
    types = {name: column.type for name, column in tables.contribution_columns().items()}
    schema = pa.schema([(name, arrow_type(types[name])) for name in tables.reduced_columns()])
    schema = schema.append(pa.field(DIGEST, pa.int64()))
    hashed = [{**row, DIGEST: _hash(tables, row)} for row in rows]
    return pa.RecordBatch.from_pylist(hashed, schema=schema)


def arrow_type(postgres_type: str) -> pa.DataType:
    """Return the Arrow type in which Spark hands over such values."""
    base, is_array = base_type(postgres_type)
    scalar = {
        "smallint": pa.int16(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "numeric": pa.decimal128(38, 2),
        "real": pa.float32(),
        "double precision": pa.float64(),
        "date": pa.date32(),
        "timestamp with time zone": pa.timestamp("us", "UTC"),
        "timestamp without time zone": pa.timestamp("us"),
        "boolean": pa.bool_(),
        "bytea": pa.binary(),
    }.get(base, pa.string())
    return pa.list_(scalar) if is_array else scalar


def _hash(tables: StateTables, row: Mapping[str, Any]) -> int:
    values = repr([row.get(name) for name in tables.column_types()])
    return int.from_bytes(hashlib.sha256(values.encode()).digest()[:8], "big", signed=True)
