"""A step whose memory is too small fails its attempt; with more of it the rows count once."""

from __future__ import annotations

import pytest

from reliability.core.definitions import SUBMIT
from reliability.core.errors import ProcessFunctionFailed
from tests.support.fix_engine import PickledPipeline
from tests.support.fix_pipeline import TWENTY, month, shop, write_parquet
from tests.support.fix_postgres import rows
from tests.support.runner import TransactionRunner

pytestmark = pytest.mark.slow


def in_the_jvm(batch):
    """Sort more than the heap has, for each row."""
    numbers = "transform(sequence(1, 60000000), n -> concat('number ', n + customer))"
    large = batch.where(f"size(array_sort({numbers})) > 0")
    return {"per_customer": large, "per_day": large}


def in_python(batch):
    """Keep more than a worker may, for each row."""
    from pyspark.sql import functions as F

    def kept(customer):
        return len([bytearray(50_000_000) for _ in range(60)]) and customer

    large = batch.withColumn("customer", F.udf(kept, "bigint")("customer"))
    return {"per_customer": large, "per_day": large}


@pytest.mark.parametrize(
    ("process", "conf", "told"),
    [
        (in_the_jvm, {"spark.driver.memory": "500m"}, "OutOfMemoryError"),
        (in_python, {"spark.executor.pyspark.memory": "1500m"}, "MemoryError"),
    ],
    ids=["JVM", "Python"],
)
def test_a_step_without_memory_fails_and_the_next_attempt_counts_once(
    tmp_path, connection, process, conf, told
):
    write_parquet(tmp_path / "1997-01" / "a.parquet", TWENTY)

    def pipeline(topology):
        runner = TransactionRunner(topology, connection)
        return PickledPipeline(runner, None, engine=SUBMIT, conf=conf)

    small = pipeline(shop(tmp_path, process))
    assert small.emit(month(1997, 1)) == [1]
    with pytest.raises(ProcessFunctionFailed, match=told):
        small.run_step(small.begin(1))
    mended = pipeline(shop(tmp_path))
    mended.transact(1)
    assert rows(connection, "SELECT sum(orders), sum(revenue) FROM per_day") == [(20, 190)]
    attempts = "SELECT status FROM reliability.attempt ORDER BY attempt_id"
    assert rows(connection, attempts) == [("FAILED",), ("COMMITTED",)]
