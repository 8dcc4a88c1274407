"""A batch adds the same in every session, whatever the host and the topology have configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest

import reliability
from reliability import Append, Count, FileSpout, MemorySpout, State, Sum, TableSpout, Topology
from reliability.core.errors import SchemaMismatch
from reliability.core.graph import THE_STEP
from reliability.deployment.lazy import pa, pq
from reliability.spark.process import prepare
from reliability.spark.session import (
    DEPRECATED,
    PINNED,
    pin_new_sessions,
    pin_settings,
    session_builder,
)
from reliability.spark.stage.reduce import reduce_frame
from reliability.spark.submission import Submission
from reliability.states.kinds import stored_state
from tests.support import local_times
from tests.support.accounts import staged, union_of
from tests.support.batches import meta_of
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows
from tests.support.functions import F

OPPOSITES = {
    "true": "false",
    "false": "true",
    "UTC": "Asia/Tokyo",
    "TIMESTAMP_LTZ": "TIMESTAMP_NTZ",
    "EXCEPTION": "LAST_WIN",
    "CORRECTED": "LEGACY",
    "^[._]": "parquet|csv|jsonl",
    "parquet": "orc",
    "avro,csv,json,kafka,orc,parquet,text": "",
    "_corrupt_record": "note",
    "legacy": "dict",
}
LEGACY = {
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.json.allowEmptyString.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.setopsPrecedence.enabled": "true",
    "spark.sql.pyspark.legacy.inferArrayTypeFromFirstElement.enabled": "true",
}


OTHERWISE = {name: OPPOSITES[value] for name, value in PINNED.items()} | LEGACY


@pytest.fixture
def hostile(spark):
    """A session that has everything otherwise."""
    session = spark.newSession()
    session.conf.set("fs.defaultFS", "hdfs://localhost:1")
    for name, value in OTHERWISE.items():
        session.conf.set(name, value)
    return session


def test_every_setting_that_changes_values_is_pinned(hostile, spark):
    pin_settings(hostile)
    assert {name: hostile.conf.get(name) for name in PINNED} == PINNED
    default = spark.newSession()
    assert [hostile.conf.get(name) for name in LEGACY] == [default.conf.get(n) for n in LEGACY]


def test_a_deprecated_setting_that_the_host_has_not_set_stays_unset(spark):
    """Spark warned of it in the log of every driver, and nobody could do anything about it."""
    pin_new_sessions(spark)
    assert not any(spark.sparkContext.getConf().contains(name) for name in DEPRECATED)


def test_no_pinned_setting_is_unknown_to_spark(spark):
    """Else a slip of the pen would pin nothing."""
    known = {row.key for row in spark.sql("SET -v").collect()}
    internal = {name for name in PINNED if name not in known}
    module = getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$")
    assert all(getattr(module, "MODULE$").containsConfigKey(name) for name in internal)
    assert all(spark.conf.isModifiable(name) for name in PINNED)


def expressions(batch):
    """Values that these settings change, each as it is written into a state."""
    frame = batch.withColumns(
        {
            "day_of": F.to_date("moment"),
            "wall": F.date_format("moment", "yyyy-MM-dd HH:mm"),
            "product": F.expr(
                "cast(PRICE * 1.000000000001BD * 1.0000000000001BD AS decimal(38,10))"
            ),
            "parsed": F.to_timestamp(F.lit("2024-01-01 00:30")),
            "literal": F.expr("'a\\\\nb' || \"c\""),
            "bytes": F.concat(F.encode(F.lit("a"), "utf-8"), F.encode(F.lit("b"), "utf-8")),
            "encoded": F.base64(F.repeat(F.lit("x"), 80)),
            "as_json": F.to_json(F.struct("note", F.lit(None).cast("int").alias("nothing"))),
            "shown": F.array(F.lit(1), F.lit(None)).cast("string"),
        }
    )
    counted = frame.groupBy("note").agg(F.count("*").alias("of_note"))
    return {"shown": frame.join(counted, "note", "left")}


COLUMNS = {
    "n": "bigint",
    "price": "numeric",
    "day": "date",
    "moment": "timestamp with time zone",
    "note": "text",
    "day_of": "date",
    "wall": "text",
    "product": "numeric",
    "parsed": "timestamp with time zone",
    "literal": "text",
    "bytes": "bytea",
    "encoded": "text",
    "as_json": "text",
    "shown": "text",
    "of_note": "bigint",
}


SCHEMA = "n bigint, price decimal(10,2), day date, moment timestamp, note string"


def spout_of(format, folder):
    if format == "table":
        return TableSpout("orders", key="n")
    if format == "memory":
        types = dict(part.split() for part in SCHEMA.split(", "))
        moment = datetime(2024, 1, 1, 23, 30, tzinfo=timezone.utc)
        row = (1, Decimal("1.10"), date(1500, 1, 1), moment, "x")
        return MemorySpout(types, [[row, row]], 9)
    text = reliability.JsonLines(counted=True) if format == "zst" else None
    return FileSpout(f"{folder}/*.{format}", schema=SCHEMA, format=text)


def write_parquet(path):
    moments = [datetime(2024, 1, 1, 23, 30, tzinfo=timezone.utc), datetime(1, 1, 1)]
    table = pa.table(
        {
            "n": pa.array([1, 2], pa.int64()),
            "price": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
            "day": pa.array([date(1500, 1, 1), date(1582, 10, 10)]),
            "moment": pa.array(moments, pa.timestamp("us", "UTC")),
            "note": ["x", ""],
        }
    )
    pq.write_table(table, path)


SOURCES = {
    "csv": '1,1.10,1500-01-01,2024-01-01T23:30:00,x\n2,,1582-10-10,0001-01-01,\n1,2,,,"x"\n',
    "jsonl": '{"n": 1, "price": 1.10, "day": "1500-01-01", "moment": "2024-01-01 23:30"}\n'
    '{"n": 2, "moment": "0001-01-01", "note": {"a": 1.50}}\n',
}
ORDERS = """
CREATE TABLE public.orders (n bigint PRIMARY KEY, price numeric(10,2), day date, moment timestamptz,
                     note text);
INSERT INTO public.orders VALUES (1, 1.10, '1500-01-01', '2024-01-01 23:30Z', 'x'),
                          (2, NULL, '1582-10-10', '0001-01-01Z', '');
"""


def test_a_hostile_session_adds_what_any_other_adds(tmp_path, dsn, database, spark, hostile):
    """Days, times, decimals, texts and names, from every kind of source."""
    for format, text in SOURCES.items():
        (tmp_path / f"a.{format}").write_text(text)
    write_parquet(tmp_path / "a.parquet")
    database.execute(ORDERS)
    formats = (*SOURCES, "parquet", "table", "memory")
    if spark.version >= "4.1":
        formats += ("zst",)
        compressed = pa.compress(SOURCES["jsonl"].encode(), "zstd", asbytes=True)
        (tmp_path / "a.zst").write_bytes(compressed)
    state = State("shown", key={"format": "text", **COLUMNS}, values={"rows": Count()})
    found = []
    for session in (spark.newSession(), hostile):
        prepare(session)
        spouts = {format: spout_of(format, tmp_path) for format in formats}
        batch = union_of(
            [
                spout.frame(session, meta_of(spout)).withColumn("format", F.lit(format))
                for format, spout in spouts.items()
            ]
        )
        reduced = reduce_frame(expressions(batch)["shown"], stored_state("sessions", state))
        found.append(sorted(reduced.toArrow().to_pylist(), key=lambda row: (row["n"], repr(row))))
    assert found[0] == found[1]
    first = {row["format"]: row for row in reversed(found[0])}
    assert {format: (str(row["day"]), row["wall"]) for format, row in first.items()} == (
        dict.fromkeys(formats, ("1500-01-01", "2024-01-01 23:30"))
    )


# --- sessions that a process function makes ------------------------------------------------------


@pytest.fixture
def hostile_application(spark):
    """The application's settings, with which new sessions begin, are all otherwise."""
    jvm_session = spark._jsparkSession
    confs = jvm_session.sharedState().conf(), jvm_session.sparkContext().conf()
    before = [conf.clone() for conf in confs]
    for conf in confs:
        for name, value in OTHERWISE.items():
            conf.set(name, value)
    yield
    for conf, old in zip(confs, before, strict=True):
        for name in OTHERWISE:
            conf.set(name, old.get(name)) if old.contains(name) else conf.remove(name)


def here_and_in_another_session(batch):
    there = batch.sparkSession.newSession().range(1).select().join(batch)
    return {"here": expressions(batch)["shown"], "there": expressions(there)["shown"]}


def test_a_session_that_the_function_makes_has_the_same_settings(spark, hostile_application):
    """V7: it begins with the host's settings, not with those of the session that it is made of."""
    states = [State(name, key=COLUMNS, values={"rows": Count()}) for name in ("here", "there")]
    topology = Topology("made", spout_of("memory", None), states, here_and_in_another_session)
    here, there = (frame.toArrow().to_pylist() for frame in staged(spark, topology)[0].values())
    assert len(here) == 1
    assert here == there


def in_tokyo(batch):
    batch.sparkSession.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return {"shown": batch}


def in_another_session_in_tokyo(batch):
    other = batch.sparkSession.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return {"shown": reliability.quarantine(other.range(1).select().join(batch), "n < 0", "low")}


@pytest.mark.parametrize("process", [in_tokyo, in_another_session_in_tokyo])
def test_what_is_made_of_the_frames_follows_no_setting_of_the_function(spark, process):
    """V7: a time in JSON, of a state and of the quarantine, is written in the session's zone."""
    noon = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    topology = Topology(
        "zones",
        spout=MemorySpout(
            {"n": "int", "at": "struct<t: timestamp>"}, [[(1, (noon,)), (-1, (noon,))]], 2
        ),
        process=process,
        states=[State("shown", key={"n": "bigint"}, values={"at": Append("at", "jsonb")})],
    )
    frames, quarantined = staged(spark.newSession(), topology)
    told = {"t": "2024-01-01T12:00:00.000000Z"}
    kept = [json.loads(row.at) for row in frames["shown"].collect()]
    aside = [json.loads(row.contents)["at"] for row in quarantined]
    assert (kept, aside) == (([told] * 2, []) if process is in_tokyo else ([told], [told]))


def configure(batch):
    batch.sparkSession.conf.set("spark.sql.ansi.enabled", "false")
    return {"total": batch}


def test_a_sum_that_overflows_is_an_error(connection, hostile):
    """Without ANSI's rules it wrapped, and was committed."""
    topology = Topology(
        "sums",
        spout=MemorySpout({"n": "bigint"}, [[2**63 - 1, 1]], 2),
        process=configure,
        states=[State("total", values={"n": Sum("n")})],
    )
    pipeline = pipeline_of(topology, connection, hostile)
    pipeline.emit(None)
    said = r"SCHEMA_MISMATCH.* n: 9223372036854775808, the sum of one key, is no bigint"
    with pytest.raises(SchemaMismatch, match=said):
        pipeline.run_step(pipeline.begin(1))


def test_each_session_of_the_project_has_its_own_parent_of_python_workers():
    """It finds their code; Spark's own imports what is on the path."""
    options = session_builder("reliability 1:0")._options
    assert options == {
        "spark.api.mode": "classic",
        "spark.app.name": "reliability 1:0",
        "spark.python.use.daemon": "true",
        "spark.python.daemon.module": "reliability.spark.daemon",
    }
    tree = Path(reliability.__file__).parents[1]
    files = [*tree.glob("reliability/**/*.py"), *tree.glob("benchmarks/project/*.py")]
    by_hand = [str(path) for path in files if "SparkSession.builder" in path.read_text()]
    assert by_hand == [str(tree / "reliability/spark/session.py")]


def test_python_workers_are_in_utc_whatever_spark_says_of_their_environment(spark, monkeypatch):
    """V7: a moment that a Python function is given, or returns, is another one elsewhere."""
    monkeypatch.setitem(spark.sparkContext.environment, "TZ", "America/New_York")
    prepare(spark)
    zone = F.udf(lambda: time.tzname[0], "string")
    assert spark.range(1).select(zone()).first()[0] == "UTC"


@pytest.mark.slow
def test_a_time_without_a_zone_is_in_utc_whatever_zone_the_host_has(pipeline, connection):
    """V7: else another host reads, compares and adds another moment."""
    times = pipeline(local_times.topology)
    times.emit(None)
    grant = times.begin(1)
    submission = Submission(module=local_times.__name__, grant=grant, step=THE_STEP)
    subprocess.run(
        [sys.executable, "-m", "reliability.spark.process_batch", *submission.arguments()],
        env=os.environ
        | {
            "TZ": "America/New_York",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false "
            "--conf spark.executorEnv.TZ=Asia/Tokyo --conf spark.python.use.daemon=false "
            "pyspark-shell",
        },
        check=True,
    )
    times.seal(grant)
    times.transact(1)
    said = "SELECT at::text, literal::text, said FROM times"
    assert rows(connection, said) == [("2024-03-10 02:30:00+00",) * 2 + ("2024-03-10 02:30:00",)]
