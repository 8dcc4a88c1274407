"""`reliability check`: what the real run would do, without a ledger and without writing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from reliability.deployment.lazy import pa, pq
from tests.support.command_line import say
from tests.support.fix_postgres import own_session

CODE = """
from reliability import Append, Avg, Count, FileSpout, Max, MemorySpout, State, Step, Sum
from reliability import TableSpout, Topology
FILES = "{folder}/in/{{data_interval_start:%Y-%m}}/*.parquet"
def both(batch):
    return {{"days": batch, "months": batch.selectExpr("*", "date_format(day, 'yyyy-MM') month")}}
def in_python(batch):
    from pyspark.sql import functions as F
    month = F.udf(month_of, "string")
    return {{"days": batch, "months": batch.withColumn("month", month("day"))}}
def month_of(day):
    return f"{{day:%Y-%m}}"
def lossy(batch):
    return both(batch) | {{"days": batch.where("price > 1")}}
def states(price="numeric(14,2)"):
    totals = {{"orders": Count(), "revenue": Sum("price", price)}}
    return [State("days", key={{"day": "date"}}, values=totals),
            State("months", key={{"month": "text"}}, values=totals)]
means = Topology("means", FileSpout(FILES), [State("m", key={{"month": "text"}}, values={{
    "orders": Count(), "mean": Avg("price", "numeric(14,2)"),
    "float": Avg("weight", "double precision"),
    "greatest": Max("price", "numeric(14,2)"), "vast": Avg("vast"), "most": Avg("most")}})],
    lambda batch: {{"m": batch.selectExpr("date_format(day, 'yyyy-MM') AS month", "price",
                                          "CAST(price AS double) AS weight",
                                          "CAST(price * 1e20BD AS decimal(28,2)) AS vast",
                                          "CAST(price * 1e20BD AS decimal(33,8)) AS most")}})
good = Topology("good", FileSpout(FILES), states(), both)
class Away(MemorySpout):
    def plan(self, interval, allocated):
        raise ConnectionError("no broker")
away = Topology("away", Away({{"day": "date"}}, [], take=1), states(), both)
python = Topology("python", FileSpout(FILES), states(), in_python)
losing = Topology("losing", FileSpout(FILES), states(), lossy)
narrow = Topology("narrow", FileSpout(FILES), states("bigint"), both)
csv = Topology("csv", FileSpout("{folder}/*.csv", schema="day date, price int"),
               states("bigint"), both)
table = Topology("table", TableSpout("sold", key="k", columns=["day", "price"]), states(), both)
full = Topology("full", FileSpout(FILES), states("numeric(2,2)"), both)
failing = Topology("failing", FileSpout(FILES), states(), lambda batch: 1 / 0)
no_frame = Topology("no_frame", FileSpout(FILES), states(), lambda batch: {{"days": batch}})
def words(batch):
    return {{"words": batch}}
def some_words(batch):
    from reliability import drop
    return {{"words": drop(batch, "word = 'a'", "too short")}}
def some_lengths(words):
    from reliability import drop
    some = drop(words, "word = 'bb'", "no word")
    return {{"lengths": lengths(some)["lengths"], "others": words.selectExpr("word", "_x", "_n")}}
def lengths(words):
    return {{"lengths": words.selectExpr("length(word) AS length", "count", "_x", "_n")}}
memory = Topology(
    "memory",
    MemorySpout({{"word": "string"}}, [["a", "bb", "a\\0", "ccc", None]], take=4),
    [State("words", key={{"word": "text"}}, values={{"count": Count()}}),
     State("lengths", key={{"length": "integer"}}, values={{"words": Sum("count", "bigint")}})],
    steps=[Step("words", words, feeds=["words"]),
           Step("lengths", lengths, feeds=["lengths"], reads=["words"])],
)
leaving = Topology(
    "leaving",
    MemorySpout({{"word": "string"}}, [["a", "bb", "ccc"]], take=3),
    [*memory.states, State("others", values={{"word": Append("word", "text")}})],
    steps=[Step("words", some_words, feeds=["words"]),
           Step("lengths", some_lengths, feeds=["lengths", "others"], reads=["words"])],
)
"""


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A module `checked_pipeline` in the current folder, and two months of files."""
    import datetime
    from decimal import Decimal

    (tmp_path / "checked_pipeline.py").write_text(CODE.format(folder=tmp_path))
    for month in (1, 2):
        folder = tmp_path / "in" / f"2013-0{month}"
        folder.mkdir(parents=True)
        day = [datetime.date(2013, month, 1 + n % 7) for n in range(20)]
        price = [Decimal(n + 1) for n in range(20)]
        table = pa.table({"day": day, "price": pa.array(price, pa.decimal128(10, 2))})
        pq.write_table(table, folder / "a.parquet", row_group_size=8)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELIABILITY_DSN", "host=/nowhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("checked_pipeline", None)


def check(topology, *arguments, code=0):
    call = ["check", topology, "--module", "checked_pipeline", *arguments]
    return say(*call, code=code).output


def errors(topology, *arguments):
    """Return the codes of a check that finds errors."""
    [sample] = json.loads(check(topology, "--json", *arguments, code=3))["samples"]
    return [(error["code"], error["what"]) for error in sample["errors"]]


@pytest.mark.slow
def test_a_pipeline_is_checked_in_a_process_of_its_own_without_a_ledger(pipeline):
    """The command itself: its Spark, and its Python functions that Spark's workers import."""
    program = str(Path(sys.executable).parent / "reliability")
    call = [program, "check", "python", "--module", "checked_pipeline", "--rows", "10"]
    before = sorted(pipeline.rglob("*"))
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=pipeline)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert "in/2013-01/a.parquet" in lines[0]
    assert lines[1] == "the first 10 of 20 rows"
    assert "revenue      decimal(20,2)  numeric(14,2)" in lines
    assert "  10 of 10 rows arrive, as 7 rows" in lines
    assert "2013-01  10      55.00" in lines
    assert lines[-1] == "ok"
    assert {*pipeline.rglob("*")} - {*before} <= {*pipeline.rglob("__pycache__/**")} | {
        *pipeline.rglob("__pycache__")
    }


def test_a_mean_is_among_the_columns(spark, pipeline):
    """Postgres computes it, so Spark's frame has only its sum and its count."""
    lines = [line.rstrip() for line in check("means", "--interval", "2013-02").splitlines()]
    assert "mean         decimal(20,2)  numeric(14,2)" in lines
    assert any(re.fullmatch(r"float +double +double precision", line) for line in lines)
    [shown] = [line.split() for line in lines if line.startswith("2013-02  ")]
    assert shown == ["2013-02", "20", "10.50", "10.5", "20.00", "unknown", "unknown"]
    assert "most         decimal(33,8)  numeric" in lines


def test_the_sample_is_the_interval_or_the_file_that_is_asked_for(spark, pipeline):
    """Without a module and a ledger it says what to type."""
    out = check("good", "in/2013-02/a.parquet", "in/2013-01/*.parquet")
    assert out.index("2013-02/a.parquet") < out.index("2013-01/a.parquet")
    assert out.count("all of its 20 rows") == 2
    assert "no file matches" in check("good", "--interval", "2013-03", code=1)
    assert "has no files" in check("memory", "in/2013-02/a.parquet", code=2)
    assert "give it with --module" in say("check", "good", code=1).output


def test_check_finds_what_the_real_run_would_raise(spark, pipeline):
    [lost] = errors("losing")
    assert lost == (
        "ROWS_UNACCOUNTED",
        "state days: 1 of 20 emitted rows did not reach it; lost, for example "
        'row 0 of a.parquet: {"day":"2013-01-01","price":1.00}',
    )
    narrow = errors("narrow")
    assert [code for code, _ in narrow] == ["SCHEMA_MISMATCH"] * 2
    assert all("does not fit" in what for _, what in narrow)
    assert (
        "UNEXPECTED_ANSWER",
        "state months: column revenue: 210.00 is not a valid numeric(2,2)",
    ) in errors("full")
    assert "division by zero" in errors("failing")[0][1]
    assert errors("away") == [("SOURCE_UNREADABLE", "ConnectionError: no broker")]
    said = "SCHEMA_MISMATCH the process function returned ['days'], but the states are ['days', "
    assert " ".join(errors("no_frame")[0]).startswith(said)


def test_check_refuses_a_file_as_emission_does(spark, pipeline):
    import datetime

    day = pa.array([datetime.datetime(2013, 3, 1)], pa.timestamp("ns"))
    pq.write_table(pa.table({"day": day}), "nanos.parquet")
    [(code, what)] = errors("good", "nanos.parquet")
    assert code == "FILE_REFUSED"
    assert "column day is INT64 TIMESTAMP(NANOS)" in what
    pq.write_table(pa.table({"day": day}), "more.parquet")
    said = check("good", "nanos.parquet", "more.parquet", "in/2013-01/a.parquet", code=3)
    assert said.count("TIMESTAMP(NANOS)") == 2  # the first must not hide the second
    assert "resume-runs good" in said
    assert "all of its 20 rows" in said


def test_steps_and_a_memory_spout_are_checked_too(spark, pipeline):
    """It took the first calls of two steps that set rows aside for one, and refused them."""
    [sample] = json.loads(check("memory", "--json", code=3))["samples"]
    assert [error["code"] for error in sample["errors"]] == ["TEXT_NOT_STORABLE"]
    words, lengths = sample["states"]
    assert (sample["rows"], words["arrived"], lengths["arrived"]) == (4, 4, 4)
    assert {row["length"]: row["words"] for row in lengths["preview"]} == {1: 1, 2: 2, 3: 1}

    [sample] = json.loads(check("leaving", "--json"))["samples"]
    arrived = {state["state"]: state["arrived"] for state in sample["states"]}
    assert arrived == {"words": 2, "lengths": 1, "others": 2}


def test_a_csv_file_and_a_table_are_checked_too(spark, pipeline, dsn, monkeypatch):
    days = "".join(f"2013-01-0{n},{n}\n" for n in range(1, 10))
    (pipeline / "a.csv").write_text(days)
    out = check("csv", "--rows", "4")
    assert "the first 4 of 9 rows" in out
    assert "4 of 4 rows arrive, as 1 row\n" in out

    monkeypatch.setenv("RELIABILITY_DSN", dsn)
    with closing(own_session(dsn)) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE sold (k bigint PRIMARY KEY, day date, price numeric(4,2))")
        cursor.execute(
            "INSERT INTO sold SELECT 3 * k, '2013-01-01', k FROM generate_series(1, 9) AS k"
        )
        session.commit()
        out = check("table", "--rows", "4")
        cursor.execute("SELECT count(*) FROM reliability.topology")
        assert cursor.fetchone() == (0,)
    assert "the first 4 of 9 rows" in out
    assert "2013-01-01  4       10.00" in out.splitlines()
    (pipeline / "a.csv").write_text("+10000-01-06,1\n")  # which Python does not have
    assert "+10000-01-06  1       1" in check("csv", "--rows", "4").splitlines()
