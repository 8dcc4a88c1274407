"""A topology that rolls dice, and its driver on a cluster that loses an executor meanwhile (V5).

`python -m tests.support.lost_executor` takes the arguments of process_batch.py. When the
first state is staged it kills one of the executors, waits until Spark has noticed, and goes on.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from reliability import Max, MemorySpout, State, Topology
from reliability.deployment.lazy import F

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
DEADLINE_SECONDS = 60
OPTIONS = (
    *("--master", "local-cluster[2,1,1024]"),
    *("--conf", "spark.executor.memory=512m"),
    # both executors have a part in the evaluation
    *("--conf", "spark.scheduler.minRegisteredResourcesRatio=1"),
    *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
)


def one_roll() -> int:
    """Return another number each time."""
    return random.getrandbits(60)


def roll(batch: Any) -> dict[str, Any]:
    """Give every row a number that comes out differently each time."""
    rolled = batch.withColumn("roll", F.udf(one_roll, "bigint").asNondeterministic()())
    return {"one_table": rolled, "other_table": rolled}


def _state(name: str) -> State:
    return State(name, key={"n": "integer"}, values={"roll": Max("roll", "bigint")})


topology = Topology(
    "dice_of_lost_executors",
    spout=MemorySpout(schema={"n": "int"}, partitions=[list(range(100))], take=100),
    process=roll,
    states=[_state("one_table"), _state("other_table")],
)


def cluster_environment(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return what lets this Python start a cluster whose files lie in a folder."""
    import pyspark

    home = scratch / "spark"  # executors keep their files in Spark's home
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return {
        **environment,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": " ".join((*OPTIONS, "pyspark-shell")),
    }


def _is_executor(process: psutil.Process) -> bool:
    try:
        return EXECUTOR in process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return False


def _lose_an_executor(spark: Any) -> None:
    status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    before = set(status().keySet().mkString(" ").split())
    started = psutil.Process().children(recursive=True)
    next(process for process in started if _is_executor(process)).kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while before <= set(status().keySet().mkString(" ").split()):
        assert time.monotonic() < deadline, "Spark does not notice that an executor is gone"


def main(arguments: list[str]) -> int:
    from reliability.spark import driver

    stage = driver._StepRun._stage
    done: list[str] = []

    def stage_and_lose(run: Any, state: Any, frame: Any, *others: Any) -> Any:
        unacked = stage(run, state, frame, *others)
        done.append(state.name)
        if len(done) == 1:
            _lose_an_executor(frame.sparkSession)
        return unacked

    driver._StepRun._stage = stage_and_lose  # type: ignore[assignment]
    return driver.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
