"""A run without Airflow: emit, process, commit, settle in one process; by verb and from Python."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any
from unittest.mock import MagicMock

import pytest

import reliability
from reliability import FileSpout, MemorySpout, State, Sum, Topology
from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import (
    InvalidDefinition,
    NothingToEmit,
    ProcessFunctionFailed,
    SourceNotReady,
)
from reliability.deployment.lazy import pa, pq
from reliability.spark import run_here
from reliability.transaction import interval_run
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.inspect.verify import verify
from reliability.transaction.interval_run import IntervalRun
from reliability.transaction.own_run import RunFailed
from reliability.transaction.process.begin import new_grant
from spark_apps import global_count
from tests.integration.test_cli import fake_airflow
from tests.support.command_line import read, say
from tests.support.fix_pipeline import TWENTY, january, month, pipeline_of, write_parquet
from tests.support.fix_pipeline import shop as shop_of_files
from tests.support.fix_postgres import rows
from tests.support.pool import PooledConnection
from tests.support.python_driver import process_in_python

MODULE = """
from pyspark.sql import functions as F
def times(n):
    return n * {factor}
def process(batch):
    return {{"total": batch.withColumn("n", F.udf(times, "bigint")("n"))}}
"""
ATTEMPTS = "SELECT txid || ':' || attempt_id, status FROM reliability.attempt ORDER BY 1"


@pytest.fixture
def topology(tmp_path):
    """A topology with two files of January and one of February, a batch each."""
    for name in ("1997-01/a", "1997-01/b", "1997-02/a"):
        write_parquet(tmp_path / f"{name}.parquet", TWENTY)
    return shop_of_files(tmp_path, pending=2)


@pytest.fixture
def broken():
    """The txids whose steps fail."""
    return set()


@pytest.fixture
def run_step(connection, topology, broken):
    """Run a step in this process, each in a session of its own."""

    def step_of(grant, step, is_wanted):
        if grant.attempt.txid in broken:
            raise RuntimeError("exit code 1")
        with PooledConnection(connection.dsn) as own:
            process_in_python(own, topology, grant, step)

    return step_of


@pytest.fixture
def run(connection, topology, run_step):
    """Run an interval."""

    def do(interval, **options):
        options = {"by": "ann", "patience": 30, **options}
        return IntervalRun(connection, topology, interval, run_step, **options).run()

    return do


def test_a_run_emits_processes_commits_and_settles(run, connection):
    done = run(january(), reason="a trial")
    assert [(str(one.attempt), one.commit_number) for one in done] == [("1:0", 1), ("2:0", 2)]
    assert done[0].rows == {"per_customer": 3, "per_day": 5}
    asked = "SELECT txid, dag_id, kind, status, reason FROM reliability.request ORDER BY txid"
    assert rows(connection, asked) == [
        (txid, "cli", "COMMIT", "SATISFIED", "a trial") for txid in (1, 2)
    ]
    assert all(one.is_exact for one in verify(connection, "shop"))
    # once more: what has committed is replayed, as by a second run of Airflow's
    again = run(january())
    assert [str(one.attempt) for one in again] == ["1:1", "2:1"]
    assert all(difference.is_nothing for one in again for difference in one.differences)
    assert [one.txid for one in run(month(1997, 2))] == [3]
    with pytest.raises(NothingToEmit):
        run(month(1997, 3))


def test_what_a_failed_run_leaves_the_next_one_takes_up(run, connection, broken):
    """Nobody else would: Airflow has no such run, and a replay is of what has committed."""
    broken.add(1)
    with pytest.raises(RunFailed) as failed:
        run(january())
    assert failed.value.left == {1, 2}
    assert "[ATTEMPT_INCOMPLETE] txid 1" in str(failed.value.first)
    with fake_airflow():
        left = read("resume-runs", "shop", code=3)["runs"]
    command = "reliability run shop --interval '1997-01'"
    assert [(one["txids"], one["next_step"]) for one in left] == [([1], command), ([2], command)]
    broken.clear()
    assert [str(one.attempt)[0] for one in run(month(1997, 2))] == ["1", "2", "3"]
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(4,)]


def test_what_a_run_of_airflow_has_left_is_taken_up_too(run, topology, connection):
    """E2: it was waited for; and if that run was deleted, nothing else could do it."""
    scheduled = pipeline_of(topology, connection)
    for txid in scheduled.emit(january()):
        scheduled.runner.close(txid, scheduled.run, "it ended without it")
    assert [one.txid for one in run(month(1997, 2))] == [1, 2, 3]
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(4,)]


def test_what_a_later_run_works_on_is_not_left(run, connection, topology, run_step, broken):
    broken.update({1, 2})  # with one of them, the other may be processed in this run
    with pytest.raises(RunFailed):
        run(january())
    broken.clear()
    seen = []
    alone = Lock()  # a command has the standard output of the whole process

    def look_and_run(*step):
        with alone:
            with fake_airflow():
                seen.append(read("resume-runs", "shop")["runs"])
            run_step(*step)

    IntervalRun(connection, topology, january(), look_and_run, by="bea", patience=30).run()
    assert seen == [[]] * 2


def test_a_source_that_is_not_ready_is_waited_for(run, topology, monkeypatch):
    looks: list[int] = []

    def is_ready(self, txid, interval):
        looks.append(txid)
        return len(looks) > 2

    monkeypatch.setattr(type(topology.spout), "is_ready", is_ready)
    monkeypatch.setattr(interval_run, "SOURCE_POLL_SECONDS", 0.01)
    assert len(run(january())) == 2
    looks[:] = [-100]
    monkeypatch.setattr(type(topology.spout), "is_ready", lambda *_: False)
    with pytest.raises(SourceNotReady):
        run(month(1997, 2), patience=0)


def test_the_verb_runs_a_topology_that_the_ledger_does_not_know_yet(
    topology, run_step, broken, monkeypatch
):
    module = "tests.replay.shop"
    monkeypatch.setattr(f"{module}.topology", replace(topology, module=module), raising=False)
    monkeypatch.setattr("reliability.cli.run.steps_of", lambda *_: run_step)
    said = say("run", "shop", "--interval", "1997-01", code=1)
    assert "[TOPOLOGY_NOT_FOUND]" in said.stderr
    assert "--module" in said.stderr
    assert "reads by interval" in say("run", "shop", "--module", module, code=1).stderr
    say("run", "shop", "--interval", "never", "--module", module, code=2)
    said = say("run", "shop", "--interval", "1997-01", "--module", module)
    assert said.stdout.startswith("1:0 committed as c=1\n  per_customer: 3 rows staged\n")
    assert "2 of 2 txids are done" in said.stderr
    [again, _] = read("run", "shop", "--interval", "1997-01")["txids"]
    assert again["attempt"] == "1:1"
    assert again["commit_number"] in (3, 4)  # two replays at once
    broken.add(3)
    said = say("run", "shop", "--interval", "1997-02", code=1).stderr
    assert "txid 3 not done; the next `reliability run` takes them up" in said
    assert "[ATTEMPT_INCOMPLETE]" in said


# --- from Python ---------------------------------------------------------------------------------


def test_a_notebook_runs_a_topology_in_its_own_session(spark, connection, capsys):
    """A topology of a notebook is in no module that spark-submit could import."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    done = reliability.run(replace(global_count.topology, module="__main__"), spark=spark)
    assert [one.attempt for one in done] == [TransactionAttempt(txid, 0) for txid in (1, 2, 3)]
    assert rows(connection, "SELECT words FROM global_count")[0][0] > 0
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert "attempt 1:0 is processed" in capsys.readouterr().err
    assert rows(connection, ATTEMPTS) == [(f"{txid}:0", "COMMITTED") for txid in (1, 2, 3)]


def test_a_step_in_a_notebook_reads_nothing_that_another_step_has_evaluated(
    spark, connection, tmp_path
):
    """V5: it stayed there, so a replay and the next batch counted by an old list of prices."""
    prices, orders = (
        tmp_path / "prices.parquet",
        FileSpout(f"{tmp_path}/{{data_interval_start:%Y-%m-%d}}/*.parquet"),
    )

    def write(path, **columns):
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path)

    def priced(batch):
        joined = batch.join(batch.sparkSession.read.parquet(str(prices)), "item", "left")
        return {"per_item": joined, "per_day": joined}

    def run_and_read(interval):
        reliability.run(topology, interval=interval, spark=spark)
        return [rows(connection, f"SELECT sum(total)::int FROM {name}")[0][0] for name in keys]

    keys = {"per_item": "item", "per_day": "day"}
    total = {"total": Sum("price", "bigint")}
    states = [State(name, key={key: "text"}, values=total) for name, key in keys.items()]
    topology = Topology("prices", orders, states, priced, module="__main__")
    for day in ("2026-01-01", "2026-01-02"):
        write(tmp_path / day / "a.parquet", item=["a", "b"], day=[day, day])
    write(prices, item=["a", "b"], price=[1, 2])
    assert run_and_read("2026-01-01") == [3, 3]
    write(prices, item=["a", "b"], price=[10, 20])
    assert run_and_read("2026-01-02") == [33, 33]
    assert run_and_read("2026-01-01") == [60, 60]


def test_a_module_that_a_notebook_loads_again_is_new_in_python_workers_too(
    spark, connection, tmp_path, monkeypatch
):
    """A9: Spark uses workers again, which had imported it as it was."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
    states = [State("total", key={}, values={"n": Sum("n", "bigint")})]
    for rows_so_far, factor in (([1], 1), ([1, 1], 10)):
        (tmp_path / "of_a_notebook.py").write_text(MODULE.format(factor=factor))
        module: Any = importlib.reload(importlib.import_module("of_a_notebook"))
        module.process.__module__ = "__main__"  # in a cell, it would use what the module has
        spout = MemorySpout({"n": "bigint"}, [rows_so_far], take=1)
        reliability.run(Topology("again", spout, states, module.process), spark=spark)
    assert rows(connection, "SELECT n::int FROM total") == [(11,)]


def test_threads_of_a_notebook_take_turns(monkeypatch):
    """V5: what one shared between its states was forgotten when another one's step began."""
    met = Barrier(2)

    def process(*_):
        with pytest.raises(BrokenBarrierError):
            met.wait(0.3)

    grant = new_grant("global_count", 1, None)
    monkeypatch.setattr(run_here, "driver_session", nullcontext)
    monkeypatch.setattr("reliability.spark.driver.process_with", process)
    with ThreadPoolExecutor(2) as threads:
        steps = [run_here.in_session(MagicMock(), global_count.topology) for _ in range(2)]
        for done in [threads.submit(step, grant, "process", lambda: True) for step in steps]:
            done.result()


def test_what_cannot_work_is_refused_before_anything_is_emitted(
    spark, connection, topology, monkeypatch
):
    """And an error of a process function reaches the notebook."""
    counted = replace(global_count.topology, module="__main__")
    refused: list[Any] = [
        ((counted, {}), "in no module that spark-submit could import"),
        ((counted, {"interval": "1997-01"}), "does not read by interval"),
        ((topology, {}), "reads by interval"),
    ]
    for given, match in refused:
        with pytest.raises(InvalidDefinition, match=match):
            reliability.run(given[0], **given[1])
    with monkeypatch.context() as patch:
        patch.setattr("time.timezone", -3600)
        with pytest.raises(InvalidDefinition, match="TZ=UTC"):
            reliability.run(counted, spark=spark)
    with pytest.raises(InvalidDefinition, match="Spark Connect"):
        reliability.run(counted, spark=object())  # type: ignore[arg-type]
    assert rows(connection, "SELECT * FROM reliability.topology") == []

    def broken(batch):
        raise ValueError("no such column")

    with pytest.raises(ProcessFunctionFailed, match="no such column"):
        reliability.run(replace(counted, process=broken, steps=()), spark=spark)


@pytest.mark.slow
def test_both_ways_run_a_real_spark_submit(connection, tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text("spark.api.mode connect")  # no Spark Connect here
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    conf = {"spark.ui.enabled": "false"}
    done = reliability.run(global_count.topology, master="local[2]", conf=conf)
    assert [one.commit_number for one in done] == [1, 2, 3]
    options = ("--master", "local[2]", "--conf", "spark.ui.enabled=false")
    assert "nothing to emit" in say("run", "global_count", *options).stdout
    drop_topology(connection, "global_count")
    said = say("run", "global_count", "--module", "spark_apps.global_count", *options).stdout
    assert said.startswith("1:0 committed as c=1\n  global_count: ")
