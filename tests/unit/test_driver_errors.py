"""What the ledger records of an error that a step raised."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError

from reliability.spark.driver import as_error
from reliability.spark.frames.jvm import is_gone
from reliability.spark.stage.stage_task import write

CALLED = "An error occurred while calling o9.collectToPython.\n"
FRAMES = "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
STALE = "Caused by: a.ChecksumException: Checksum error: file:/in/b.parquet at 0 exp: 1 got: 2\n"
WORKER = 'Traceback (most recent call last):\n  File "worker.py", line 7, in main\nMemoryError\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{CALLED}: java.lang.OutOfMemoryError: Java heap space\n{FRAMES}", "Java heap space"),
        (f"{CALLED}: a.B: aborted\n{FRAMES}Caused by: c.D: a disk is full\n", "a disk is full"),
        (f"Python has thrown, see below.\n{WORKER}", "MemoryError"),
        ("the map has no such key\nmore", "the map has no such key"),
        (f"{CALLED}: a.B: aborted\n{STALE}", "/in/b.parquet is not as the checksums beside it say"),
    ],
)
def test_a_step_that_failed_says_what_was_thrown_at_first(text, told):
    error = as_error(RuntimeError(text))
    assert error.what.endswith(told)
    assert ("delete /in/.b.parquet.crc," in error.what_to_do) == (STALE in text)


def test_a_service_of_the_users_that_refuses_is_no_jvm_that_has_ended():
    with pytest.raises(ConnectionRefusedError) as refused:
        socket.create_connection(("127.0.0.1", 1), timeout=5)
    assert not is_gone(refused.value)
    with pytest.raises(Py4JNetworkError) as ended:
        JavaGateway(gateway_parameters=GatewayParameters(port=1)).jvm.System.gc()
    assert is_gone(ended.value)


def test_a_stage_that_lost_an_executor_has_as_many_partitions_as_tasks_have_answered():
    """V1: Spark tells the tasks of its last try; the attempt failed, with all rows acked."""
    staged = Mock(columns=["a"])
    stage = staged.sparkSession.sparkContext.statusTracker().getStageInfo
    collect = staged.toDF().mapInArrow().collect
    for tasks, answers, partitions in ((2, 4, 4), (4, 4, 4), (5, 4, 5)):
        stage.return_value = SimpleNamespace(numTasks=tasks)
        collect.return_value = [{"partition": n, "stage": 7} for n in range(answers)]
        assert write(staged, iter) == partitions
