"""The kinds of states all the way: Spark, seal, commit, replay (rules H5, H6)."""

from __future__ import annotations

import pytest

from reliability import (
    Append,
    Count,
    Latest,
    MemorySpout,
    OpaqueState,
    State,
    Sum,
    Topology,
    TransactionalState,
)
from reliability.core.errors import ReplayNotPossible
from reliability.transaction.commit.drain import drain
from tests.support.fix_postgres import rows

WORDS = [("a", 1), ("b", 2), ("a", 4), ("c", 8)]  # two txids of two
COUNTS = {"n": Count(), "total": Sum("v")}
FACTOR = {"v": 1}


def times(batch):
    """The process function, which somebody corrects between two runs."""
    changed = batch.withColumn("v", batch.v * FACTOR["v"])
    return {"counts": changed, "log": changed}


def kept(name, state):
    return Topology(
        name,
        spout=MemorySpout(schema={"word": "string", "v": "bigint"}, partitions=[WORDS], take=2),
        process=lambda batch: {state.name: times(batch)["counts"]},
        states=[state],
        max_spout_pending=3,
        module=__name__,
    )


@pytest.fixture(autouse=True)
def as_first_written():
    FACTOR["v"] = 1
    yield
    FACTOR["v"] = 1


def test_contributions_and_appended_rows_are_replaced_at_any_txid(pipeline, connection):
    by = {"v": "bigint"}
    state = State("counts", key={"word": "text"}, values=COUNTS | {"last": Latest("v", by)})
    log = State("log", key={"word": "text"}, values={"v": Append("v")})
    topology = Topology(
        "kinds",
        spout=MemorySpout(schema={"word": "string", "v": "bigint"}, partitions=[WORDS], take=2),
        process=times,
        states=[state, log],
        max_spout_pending=3,
    )
    first = pipeline(topology)
    for txid in first.emit(None):
        first.transact(txid)
    logged = "SELECT word, v, _txid, _attempt_id FROM log ORDER BY v"
    assert rows(connection, logged) == [
        ("a", 1, 1, 0),
        ("b", 2, 1, 0),
        ("a", 4, 2, 0),
        ("c", 8, 2, 0),
    ]
    FACTOR["v"] = 100
    again = first.again()
    again.emit(None)
    again.transact(1)
    assert rows(connection, "SELECT word, n, total, last FROM counts ORDER BY word") == [
        ("a", 2, 104, 100),
        ("b", 1, 200, 200),
        ("c", 1, 8, 8),
    ]
    assert rows(connection, logged) == [
        ("a", 4, 2, 0),
        ("c", 8, 2, 0),
        ("a", 100, 1, 1),
        ("b", 200, 1, 1),
    ]
    assert rows(connection, "SELECT count(*) FROM reliability_contribution.kinds__log") == [(0,)]


def test_an_opaque_state_lets_only_the_last_txid_be_replayed(pipeline, connection):
    state = OpaqueState("counts", key={"word": "text"}, values=COUNTS)
    first = pipeline(kept("kinds", state))
    first.emit(None)
    first.transact(1)
    FACTOR["v"] = 100
    again = first.again()
    again.emit(None)
    grant = again.begin(1)  # the last txid now, and no more when it is to commit
    first.transact(2)
    again.run_step(grant)
    again.seal(grant)
    with pytest.raises(ReplayNotPossible, match="only the last txid, 2"):
        drain(connection, "kinds", own_txid=1)
    shown = "SELECT word, n, total FROM counts ORDER BY word"
    assert rows(connection, shown) == [("a", 2, 401), ("b", 1, 2), ("c", 1, 800)]
    with pytest.raises(ReplayNotPossible, match="only the last txid, 2"):
        again.transact(1)  # begun no more
    FACTOR["v"] = 1
    once_more = again.again()
    once_more.emit(None)
    once_more.transact(2)
    assert rows(connection, shown) == [("a", 2, 5), ("b", 1, 2), ("c", 1, 8)]
    staged = "SELECT DISTINCT _txid, _attempt_id FROM reliability_contribution.kinds__counts"
    assert rows(connection, staged) == [(1, 1)]  # of the refused attempt, until it is cleaned


def test_a_transactional_state_lets_no_txid_be_replayed(pipeline, connection):
    state = TransactionalState("counts", key={"word": "text"}, values=COUNTS)
    first = pipeline(kept("kinds", state))
    first.emit(None)
    first.transact(1)
    first.transact(1)  # a retry is no replay
    again = first.again()
    again.emit(None)
    with pytest.raises(ReplayNotPossible, match="TransactionalState"):
        again.transact(1)
    assert rows(connection, "SELECT max(attempt_id) FROM reliability.attempt") == [(0,)]
