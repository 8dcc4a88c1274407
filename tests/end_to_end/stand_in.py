"""Stands in for spark-submit where a test is about dates: the driver's work without a JVM.

It reads the batch, fences, stages and acks as the driver's Spark tasks do (`StageTask`), so that an
attempt takes a second instead of twelve. In `DATES_FOLDER/<topology>/`, the file `hold` keeps the
attempt PROCESSING until it is gone, and `read_as.json` is the pipeline's code: which word to count
as which. The word `broken` fails the attempt, unless it is counted as another.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.services.processes import wait_until
from reliability.core.attempt import Grant
from reliability.core.definitions import Topology
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta
from reliability.deployment.fingerprint import fingerprint
from reliability.deployment.settings import ledger_dsn
from reliability.deployment.topologies import load_topology
from reliability.ledger.connection import LedgerConnection
from reliability.spark.imports import find_code
from reliability.spark.stage import stage_task
from reliability.spark.submission import Submission
from reliability.spouts.file_item import FileItem
from reliability.spouts.tuple_ids import fold_rows
from reliability.states.tables import StateTables
from reliability.transaction.process.attempt_messages import (
    DriverProcess,
    declare_partitions,
    read_batch_meta,
    start_step,
    verify_source,
)
from tests.support.spark_rows import spark_batch

PATIENCE = 300
BROKEN = "broken"


def main(arguments: Sequence[str]) -> None:
    """Process the attempt that spark-submit's arguments name."""
    find_code(sys.path)
    # spark-submit's own come first, then the application, then what the application is told
    submission = Submission.parse(arguments[list(arguments).index("--topology") :])
    grant = submission.grant
    topology = load_topology(submission.module, grant.topology)
    folder = Path(os.environ["DATES_FOLDER"]) / topology.name
    connection = LedgerConnection(ledger_dsn(), application_name=f"reliability {grant} driver")
    try:
        start_step(connection, grant, submission.step, _this_driver(topology))
        wait_until(lambda: not (folder / "hold").exists(), "to be let go", PATIENCE)
        meta = read_batch_meta(connection, grant)
        verify_source(connection, grant, topology.spout, meta)
        stage(connection, topology, grant, count(meta, _code(folder)))
    finally:
        connection.close()


def count(meta: BatchMeta, read_as: dict[str, str]) -> dict[str, Fold]:
    """Return how often each word is in the batch, with the fold of its rows' ids."""
    import pyarrow.parquet as pq

    counted: dict[str, Fold] = defaultdict(Fold)
    for ordinal, item in enumerate(meta.items):
        assert isinstance(item, FileItem)
        for index, word in enumerate(pq.read_table(item.path)["word"].to_pylist()):
            if (word := read_as.get(word, word)) == BROKEN:
                raise ValueError(f"{item.path}: {BROKEN}")
            counted[word] += fold_rows(ordinal, 1, first=index)
    return counted


def stage(
    connection: LedgerConnection, topology: Topology, grant: Grant, counted: dict[str, Fold]
) -> None:
    """Stage a row a word, fence, ack: one partition."""
    (state,) = topology.states
    tables = StateTables(topology.name, state)
    place = {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id}
    staged: list[dict[str, Any]] = [
        {**place, "word": word, "times": fold.count, "_rows": fold.count}
        | {"_x": fold.xor, "_n": fold.count}
        for word, fold in counted.items()
    ]
    stage_task(connection, tables, grant).stage(0, iter([spark_batch(tables, staged)]))
    declare_partitions(connection, grant, state.name, 1)


def _code(folder: Path) -> dict[str, str]:
    file = folder / "read_as.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _this_driver(topology: Topology) -> DriverProcess:
    return DriverProcess(
        host="stand-in",
        jvm_pid=os.getpid(),
        python_pid=os.getpid(),
        application_id=f"stand-in-{os.getpid()}",
        code=fingerprint(topology),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
