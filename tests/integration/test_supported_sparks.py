"""Each Spark that this package is tried with does what the accounting relies on (V3, V5, V8).

Only one Spark is installed. `RELIABILITY_SPARKS` names other Pythons, with a colon between them,
in which pyspark, psycopg2 and pyarrow are installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.core.errors import SparkNotSupported
from reliability.spark import process
from reliability.spark.frames.jvm import Plan
from reliability.spark.process import prepare
from reliability.spark.supported import check_spark

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = [sys.executable, *filter(None, os.environ.get("RELIABILITY_SPARKS", "").split(":"))]
PROBE = """
from pyspark.sql import SparkSession
from reliability.spark.process import prepare
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
prepare(spark)
print("supported", spark.version)
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_the_accounting_works_on_this_spark(python, spark):
    """V3: pyspark has no API for it, so a release may change it unseen."""
    if python == sys.executable:
        prepare(spark)
        check_spark(spark)
        return
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        [python, "-c", PROBE], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.startswith("supported 4."), done.stderr


BROKEN = {
    "hidden columns are lost": (Plan, "hide", lambda plan, columns: None),
    "nothing is hidden any more": (Plan, "without", lambda plan, columns: plan),
    "columns are found that are not hidden": (
        Plan,
        "reachable",
        property(lambda plan: plan.output),
    ),
    "all plans look alike": (Plan, "identity", property(lambda plan: "")),
    "no two plans look alike": (Plan, "identity", property(lambda plan: object())),
    "clocks are not seen": (Plan, "has_clock", False),
    "every operator has a clock": (Plan, "has_clock", True),
    "operators have other names": (Plan, "name", "Operator"),
    "all functions are deterministic": (Plan, "deterministic", True),
    "a method has gone": (Plan, "is_leaf", property(lambda plan: plan.java.hasNoChildren())),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_spark_that_does_otherwise_is_refused_before_a_row_is_read(spark, monkeypatch, what):
    """V3: it would count wrongly, without an error."""
    prepare(spark)
    monkeypatch.setattr(*BROKEN[what])
    with pytest.raises(SparkNotSupported, match=rf"Spark {spark.version} differs"):
        check_spark(spark)


def test_what_prepares_a_session_runs_no_job(spark, monkeypatch):
    monkeypatch.setattr(process, "_CHECKED", set())
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("probe", "")
    try:
        prepare(spark)
        assert tracker.getJobIdsForGroup("probe") == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
