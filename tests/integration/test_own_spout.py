"""A spout of somebody's own goes all the way: emission, Spark, commit, replay."""

from __future__ import annotations

import json

import pytest

from reliability import Count, State, Sum, Topology
from reliability.core import spout as core_spout
from reliability.core.errors import RowsUnaccounted, SourceChanged
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.maintain.sweep import sweep
from tests.support.fix_pipeline import in_both_engines
from tests.support.fix_postgres import rows
from tests.support.json_document import JsonDocument

FACTOR = {"n": 1}
TOTAL = "SELECT rows, total FROM numbers"


def times(batch):
    return {"numbers": [{**row, "n": row["n"] * FACTOR["n"]} for row in batch]}


def as_it_is(batch):
    return {"numbers": batch}


@pytest.fixture(autouse=True)
def as_first_written():
    FACTOR["n"] = 1
    yield
    FACTOR["n"] = 1


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"a": [1, 2], "b": [2], "c": [4, 8, 16]}))
    return path


def topology(path, process=times, opaque=False):
    return Topology(
        "numbers",
        spout=JsonDocument(path, opaque),
        process=process,
        states=[State("numbers", values={"rows": Count(), "total": Sum("n")})],
        max_spout_pending=2,
    )


def test_a_spout_of_ones_own_goes_all_the_way(document, python_pipeline, connection):
    first = python_pipeline(topology(document))
    assert first.emit(None) == [1, 2]
    for txid in (1, 2):
        first.transact(txid)
    assert rows(connection, TOTAL) == [(6, 33)]

    document.write_text(json.dumps(json.loads(document.read_text()) | {"d": [100]}))
    FACTOR["n"] = 10
    again = first.again()
    assert again.emit(None) == [1, 2]
    again.transact(1)
    assert rows(connection, TOTAL) == [(6, 78)]  # 5 became 50

    FACTOR["n"] = 1
    later = first.again("later")
    assert later.emit(None) == [3]
    later.transact(3)
    assert rows(connection, TOTAL) == [(7, 178)]


@in_both_engines
def test_a_loss_behind_ones_own_spout_or_a_change_below_it_fails_the_attempt(
    document, pipeline, connection
):
    first = pipeline(topology(document, lambda batch: {"numbers": batch.where("n <> 4")}))
    first.emit(None)
    with pytest.raises(RowsUnaccounted):
        first.process(2)
    grant = first.begin(1)
    was = document.read_text()
    document.write_text(json.dumps({"a": [1], "b": [2], "c": []}))
    with pytest.raises(SourceChanged, match="other lists"):
        first.run_step(grant)
    document.write_text(was)
    first.transact(1)
    assert rows(connection, TOTAL) == [(3, 5)]


def test_a_sweep_commits_an_opaque_batch_of_items_that_it_does_not_know(
    document, python_pipeline, connection, monkeypatch
):
    """E4: a process without the pipeline's module freezes the batch, and fails no attempt."""
    first = python_pipeline(topology(document, as_it_is, opaque=True))
    assert first.emit(None) == [1, 2]
    first.process(1)
    first.process(2)
    with monkeypatch.context() as without_module:
        without_module.delitem(core_spout._ITEM_TYPES, "json_document")
        swept = sweep(LedgerConnection(connection.dsn), "numbers", Leases(overdue=0))
    assert [str(one.attempt) for one in swept.committed] == ["1:0", "2:0"]
    assert rows(connection, TOTAL) == [(6, 33)]
    items = "SELECT txid, item, part::text FROM reliability.source_item ORDER BY txid, item"
    assert rows(connection, items) == [
        (1, "json_document:a", "{(,)}"),
        (1, "json_document:b", "{(,)}"),
        (2, "json_document:c", "{(,)}"),
    ]
    assert rows(connection, "SELECT DISTINCT verdict FROM reliability.transaction") == [("EXACT",)]

    later = first.again("later")  # nothing is left for it
    assert later.emit(None) == [3]
    later.transact(3)
    empty = "SELECT emitted_count, committed_attempt FROM reliability.transaction WHERE txid = 3"
    assert rows(connection, empty) == [(0, 0)]
    assert rows(connection, TOTAL) == [(6, 33)]
