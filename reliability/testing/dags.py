"""Check a folder of DAG files as Airflow will meet them: imports, times, tables, connections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from reliability.core.definitions import Topology
from reliability.deployment.address import NOT_NAMED, ConnIds

HEAVY = ("numpy", "pandas", "pyarrow", "pyspark")
#: Imports each file as a DAG processor does: in a process that has imported Airflow before.
_IMPORT = """
import json, os, runpy, sys, time
import airflow.sdk, reliability_airflow.dag_factory
before, heavy = {*sys.modules}, sys.argv[1].split()
for path in sys.argv[2:]:
    sys.stdout.flush()
    if os.fork():
        os.wait()
        continue
    error, started = "", time.process_time()
    try:
        runpy.run_path(path)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    seconds = time.process_time() - started
    found = sorted({*sys.modules} - before)
    print()  # what the file has printed may not end its line
    print(json.dumps(["imported", path, seconds, [n for n in found if n in heavy], error]))
    sys.stdout.flush()
    os._exit(0)
"""


class DagsBroken(AssertionError):
    """DAG files would fail, or be slow, in Airflow.

    :ivar broken: what is wrong, a sentence each
    """

    def __init__(self, folder: Path, broken: Sequence[str]) -> None:
        self.broken = tuple(broken)
        lines = "".join(f"\n- {sentence}" for sentence in self.broken)
        super().__init__(f"the DAG files in {folder} have faults:{lines}")


def check_dags(
    folder: str | Path, *, most_seconds: float = 0.5, connections: bool = True
) -> list[str]:
    """Check the DAG files of a folder; return the ids of their DAGs.

    - each file imports without an error, with the folder on its path, as in Airflow; within
      `most_seconds` beyond Airflow and this package; and imports no pyspark or other heavy library
    - no two DAGs write a table by different topologies, or have different topologies of one name;
      where they name different connections, these are taken for different databases
    - the connections that tasks name are there

    Airflow has to be set up, as for any test of DAGs: AIRFLOW_HOME and a migrated database.

    :param connections: look the connections up; leave it out where the test has none
    :raises DagsBroken: something is wrong; the error has every sentence that was found
    """
    folder = Path(folder)
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.0
        from airflow.models.dagbag import DagBag  # type: ignore[no-redef]

    # Airflow's processor has the folder on its path, which a DagBag leaves to it; and that of an
    # older Airflow loads its examples, too.
    with (
        patch.object(sys, "path", [*sys.path, str(folder.absolute())]),
        patch.dict(os.environ, AIRFLOW__CORE__LOAD_EXAMPLES="False"),
    ):
        bag = DagBag(str(folder))
        broken = [
            f"{Path(file).name} cannot be imported: {error.strip().splitlines()[-1]}"
            for file, error in bag.import_errors.items()
        ]
        files = sorted({dag.fileloc for dag in bag.dags.values()})
        broken += _slow_imports(files, most_seconds) if files else []
    broken += _clashes(bag.dags.values())
    if connections:
        broken += _missing_connections(bag.dags.values())
    if not (bag.dags or broken):
        broken.append("there is no DAG")
    if broken:
        raise DagsBroken(folder, broken)
    return sorted(bag.dags)


def _slow_imports(files: Sequence[str], most_seconds: float) -> Iterator[str]:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, " ".join(HEAVY), *files],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    unanswered = [*files]
    for line in done.stdout.splitlines():
        if not line.startswith('["imported"'):  # what a file prints
            continue
        _, path, seconds, heavy, error = json.loads(line)
        unanswered.remove(path)
        name = Path(path).name
        if error:
            yield f"{name} cannot be imported by itself: {error}"
        if heavy:
            yield f"{name} imports {', '.join(heavy)}: import them where they are used"
        if seconds > most_seconds:
            yield f"{name} takes {seconds:.1f} s to import, more than {most_seconds:g} s"
    for path in unanswered:
        yield f"{Path(path).name} cannot be imported by itself: it ends the process"


def _topologies(dags: Any) -> Iterator[tuple[Topology, ConnIds]]:
    """Yield the topology of each task that has one, and the connections that its DAG names."""
    for dag in dags:
        for task in dag.tasks:
            if isinstance(topology := getattr(task, "topology", None), Topology):
                yield topology, getattr(task, "conn_ids", NOT_NAMED)


def _clashes(dags: Any) -> Iterator[str]:
    """Yield what two topologies cannot both have: a name in a ledger, a table in a database."""
    by_name: dict[tuple[str, str], set[str]] = defaultdict(set)
    writers: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for topology, conn_ids in _topologies(dags):
        by_name[conn_ids.ledger, topology.name].add(topology.module)
        writer = topology.name + (f" (in {conn_ids.ledger})" if conn_ids.ledger else "")
        for state in topology.states:
            conn_id = conn_ids.for_database(state.database)
            database = "" if conn_id else state.database
            writers[conn_id, database, ".".join(state.target)].add(writer)
    for (_, name), modules in by_name.items():
        if len(modules) > 1:
            yield f"topology {name} is defined in {' and in '.join(sorted(modules))}"
    for (*_, table), names in writers.items():
        if len(names) > 1:
            yield f"table {table} is written by {' and '.join(sorted(names))}"


def _missing_connections(dags: Any) -> Iterator[str]:
    from reliability.deployment.airflow_connections import find_connection

    asking: dict[str, set[str]] = defaultdict(set)
    for dag in dags:
        for task in dag.tasks:
            ids = [getattr(task, name, None) for name in ("conn_id", "ledger_conn_id")]
            ids += [*(getattr(task, "database_conn_ids", None) or {}).values()]
            for conn_id in filter(None, ids):
                asking[conn_id].add(dag.dag_id)
    for conn_id, dag_ids in sorted(asking.items()):
        try:
            find_connection(conn_id)
        except Exception as error:  # a secrets backend may raise anything
            dags_named = ", ".join(sorted(dag_ids))
            yield (
                f"connection {conn_id}, needed by {dags_named}, is not there or cannot be read:"
                f" {type(error).__name__}"
            )
