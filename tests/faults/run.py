"""Runs scenarios in a process that has a server of its own, whose crash hurts nobody else."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import groupby
from multiprocessing.util import Finalize
from pathlib import Path

from dev.services.environment import Environment
from tests.end_to_end.stand_in import put_command
from tests.faults.bank import ENGINE, MASTER, METADATA
from tests.faults.matrix import SCENARIOS, Matrix, Outcome
from tests.faults.proxy import Change, FaultKind, Proxy
from tests.support.fix_postgres import running_environment
from tests.support.standalone import standalone_cluster

DAGS = Path(__file__).with_name("dags")


@cache
def _own_matrix() -> Matrix:
    """Return this process's matrix, which lasts until the process ends."""
    stack = ExitStack()
    Finalize(None, stack.close, exitpriority=1)
    return stack.enter_context(server())


@contextmanager
def server() -> Iterator[Matrix]:
    """Lend a matrix, and let the environment of this process lead to its server."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as name,
        running_environment(Path(name) / "environment") as environment,
    ):

        def crash() -> None:
            environment.postgres.kill()
            environment.postgres.start()

        proxy = Proxy(Path(name), environment.postgres.port, crash)
        credentials = environment.credentials
        password = credentials.password("reliability")
        with credentials.pass_file.open("a") as file:  # for whoever comes through the proxy
            file.write(f"{name}:{environment.postgres.port}:*:reliability:{password}\n")

        @cache
        def of_airflow() -> Mapping[str, str]:
            return _airflow(environment, Path(name))

        @cache
        def of_cluster() -> Mapping[str, str]:
            cluster = stack.enter_context(
                standalone_cluster(Path(name) / "cluster", environment.java.home, credentials.env())
            )
            return {MASTER: cluster.master, "PYSPARK_PYTHON": str(cluster.python)}

        def of_engine(engine: str) -> Mapping[str, str]:
            if engine == "cluster":
                return {ENGINE: "submit", **of_cluster()}
            if engine == "warm":
                environment.start_engine()
            return {ENGINE: engine}

        with ExitStack() as stack:
            stack.callback(proxy.close)
            stack.callback(environment.engine.stop)
            yield Matrix(proxy, dict(os.environ), of_engine, of_airflow)


def _airflow(environment: Environment, folder: Path) -> Mapping[str, str]:
    """Make a database of Airflow's, and return how a process finds a copy of it."""
    database = folder / "airflow.db"
    connection = {"conn_type": "spark", "host": "local", "extra": put_command(folder)}
    environment.airflow_settings |= {
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database}",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "CRITICAL",  # that tasks fail is meant
        "AIRFLOW_CONN_STAND_IN": json.dumps(connection),
        "DATES_FOLDER": str(folder),
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        METADATA: str(database),
    }
    environment.airflow.migrate()
    return environment.airflow.env()


def run(place: int, kinds: Sequence[FaultKind]) -> tuple[list[Outcome], int]:
    """Run all cells of a scenario, print what becomes of each, and count the snapshots read.

    :param place: the scenario's in SCENARIOS; what chooses its changes cannot be sent to a process
    """
    matrix = _own_matrix()
    before = matrix.snapshots
    outcomes = []
    found = matrix.outcomes(SCENARIOS[place], kinds=lambda _: kinds)
    for change, cells in groupby(found, _change_of):
        own = [*cells]
        signs = "".join("X" if one.wrong else "." for one in own)
        wrong = [f"\n    {one.kind.value}: {one.wrong}" for one in own if one.wrong]
        print(f"{own[0].scenario:<38} {change!s:<34} {signs}{''.join(wrong)}", flush=True)
        outcomes += own
    return outcomes, matrix.snapshots - before


def _change_of(outcome: Outcome) -> Change:
    return outcome.change
