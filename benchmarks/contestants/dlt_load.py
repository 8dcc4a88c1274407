"""dlt: Arrow tables through its Parquet loader, which is its fastest into Postgres.

The files are loaded by two workers. A merge uses the strategy `upsert`, one MERGE statement.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.update(
    {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "LOAD__WORKERS": "2",
        "NORMALIZE__WORKERS": "1",
    }
)

import dlt
import pyarrow.parquet as pq

from benchmarks.job import Job

FILES_AT_ONCE = 2
MERGE = {"disposition": "merge", "strategy": "upsert"}
KEY = {"id": {"primary_key": True, "unique": True, "nullable": False}}


def append(job: Job) -> None:
    load(job, "append/*.parquet", "append")


def base_upsert(job: Job) -> None:
    """Load the table that the upsert changes, with an index over its key."""
    load(job, "upsert/2026-01/*.parquet", "replace", KEY)


def upsert(job: Job) -> None:
    load(job, "upsert/2026-02/*.parquet", MERGE, KEY)


def load(job: Job, pattern: str, disposition: Any, columns: Any = None) -> None:
    """Run a pipeline whose only folder is the job's."""
    files = job.files(pattern)
    rows = sum(pq.read_metadata(path).num_rows for path in files)
    os.environ["DATA_WRITER__FILE_MAX_ITEMS"] = str(rows // FILES_AT_ONCE)
    pipeline = dlt.pipeline(
        "benchmark",
        pipelines_dir=str(job.scratch),
        destination=dlt.destinations.postgres(job.database.uri),
        dataset_name="public",
    )
    pipeline.run(resource(files, disposition, columns), loader_file_format="parquet")


def resource(files: list[str], disposition: Any, columns: Any) -> Any:
    return dlt.resource(
        (pq.read_table(path) for path in files),
        name="orders",
        write_disposition=disposition,
        columns=columns,
    )
