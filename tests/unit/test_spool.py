"""Rows are held back until they can be copied without waiting: in memory, or in a file."""

from __future__ import annotations

import tempfile

import pytest

from reliability.deployment.lazy import pa
from reliability.spark.stage import spool
from reliability.spark.stage.spool import Delivery, Mode, spooled

BATCH = 800  # bytes: a hundred numbers


def delivered(*batches):
    delivery = Delivery()
    for size, seconds in batches:
        delivery = delivery.plus(size, seconds)
    return delivery


@pytest.mark.parametrize(
    ("batches", "mode"),
    [
        ([], Mode.COLLECT),
        ([(5, 0.0), (9, 0.0)], Mode.COLLECT),  # too few to tell
        ([(5, 0.0), (10, 0.0)], Mode.STREAM),
        ([(5, 0.0), (10, 1.1)], Mode.COLLECT),
        ([(60, 9.0), (39, 9.0)], Mode.COLLECT),  # slow, and it fits
        ([(60, 0.0), (40, 4.0)], Mode.STREAM),  # ten bytes a second are fast
        ([(60, 0.0), (40, 4.1)], Mode.SPILL),
        ([(60, 99.0), (40, 4.0)], Mode.STREAM),  # the first had to wait for a sort
        ([(0, 99.0), (60, 99.0), (40, 4.0)], Mode.STREAM),  # empty ones are none
        ([(100, 0.0)], Mode.SPILL),  # one batch tells nothing
    ],
)
def test_what_is_done_with_the_rest_depends_on_how_fast_rows_come(batches, mode):
    assert delivered(*batches).mode(memory=100, sample=10, fast=10) is mode


class Source:
    """Batches that take their time, and how many were asked for."""

    def __init__(self, batches, seconds_each):
        self.batches = batches
        self.seconds_each = seconds_each
        self.asked = 0
        self.now = 0.0

    def __iter__(self):
        for number in range(self.batches):
            self.asked += 1
            self.now += self.seconds_each
            yield pa.record_batch({"n": pa.array(range(number, number + 100), pa.int64())})

    def spooled(self):
        return spooled(iter(self), clock=lambda: self.now)


@pytest.fixture(autouse=True)
def bounds(monkeypatch):
    """Four batches fit into memory; one tells how fast the others come, one a second is fast."""
    monkeypatch.setattr(spool, "MEMORY_BYTES", 4 * BATCH)
    monkeypatch.setattr(spool, "SAMPLE_BYTES", BATCH)
    monkeypatch.setattr(spool, "FAST_BYTES_PER_SECOND", BATCH)


@pytest.fixture
def files(monkeypatch):
    """Every temporary file that was opened."""
    opened = []
    make = tempfile.TemporaryFile

    def remember(*arguments, **options):
        opened.append(make(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", remember)
    return opened


@pytest.mark.parametrize(
    ("batches", "seconds_each", "asked", "written"),
    [
        (0, 9, 0, 0),
        (3, 9, 3, 0),
        (9, 1, 2, 0),
        (9, 2, 9, 1),
        (4, 2, 4, 1),  # nothing is left for the file
    ],
)
def test_all_batches_come_in_order_and_slow_ones_are_there_before(
    files, batches, seconds_each, asked, written
):
    source = Source(batches, seconds_each)
    with source.spooled() as ready:
        assert source.asked == asked
        assert [batch["n"][0].as_py() for batch in ready] == list(range(batches))
    assert len(files) == written


def test_what_was_read_is_let_go_of():
    source = Source(9, 2)
    with source.spooled() as ready:
        before = pa.total_allocated_bytes()
        for _ in range(4):
            next(ready)
        assert pa.total_allocated_bytes() <= before - 4 * BATCH


def test_the_file_goes_away_whatever_happens(files):
    def copy():
        with Source(9, 2).spooled() as ready:
            next(ready)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        copy()
    assert [file.closed for file in files] == [True]


def test_a_source_that_fails_while_it_is_written_leaves_no_file(files):
    def failing():
        yield from Source(6, 2)
        raise ZeroDivisionError

    clock = iter(range(1000))
    with pytest.raises(ZeroDivisionError), spooled(failing(), lambda: 2.0 * next(clock)):
        pytest.fail("there is nothing to copy")
    assert [file.closed for file in files] == [True]


def test_the_file_lies_where_spark_spills(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/nonexistent,{tmp_path}")
    assert spool._folder() == str(tmp_path)
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert spool._folder() is None
