"""What the ledger records of an error that a step raised."""

from __future__ import annotations

import pytest

from reliability.spark.driver import as_error

CALLED = "An error occurred while calling o9.collectToPython.\n"
FRAMES = "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
WORKER = 'Traceback (most recent call last):\n  File "worker.py", line 7, in main\nMemoryError\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{CALLED}: java.lang.OutOfMemoryError: Java heap space\n{FRAMES}", "Java heap space"),
        (f"{CALLED}: a.B: aborted\n{FRAMES}Caused by: c.D: a disk is full\n", "a disk is full"),
        (f"Python has thrown, see below.\n{WORKER}", "MemoryError"),
        ("the map has no such key\nmore", "the map has no such key"),
    ],
)
def test_a_step_that_failed_says_what_was_thrown_at_first(text, told):
    assert as_error(RuntimeError(text)).what.endswith(told)
