"""One topology, its states in two databases: emit to commit (G3, C6)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from reliability import Count, FileSpout, State, Step, Sum, Topology
from reliability.core.checkpoint import CheckpointAction
from reliability.core.errors import AttemptIncomplete, CheckpointTakenOver, StateDefinitionChanged
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.spark import driver
from reliability.transaction.commit.checkpoint_driver import Checkpoint
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct import park as park_module
from reliability.transaction.correct.park import park, skip
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.topology.read_standing import find_standing
from reliability.transaction.topology.server import fence_every_attempt
from tests.replay.shop import Shop, made
from tests.support.fix_pipeline import TWENTY, month, write_parquet
from tests.support.fix_postgres import database_of, execute, new_database, rows
from tests.support.runner import TransactionRunner

HERE = "SELECT customer, orders, _txid FROM per_customer ORDER BY 1"
THERE = "SELECT sum(orders), sum(revenue), max(_txid) FROM per_day"
STATUS = "SELECT txid, attempt_id, status FROM reliability.attempt ORDER BY 1, 2"
C = "SELECT commit_number FROM reliability.checkpoint WHERE phase = 'COMMITTED'"


def spread(folder):
    """A step for each database."""
    return Topology(
        "shop",
        spout=FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet"),
        states=[
            State("per_customer", key={"customer": "bigint"}, values={"orders": Count()}),
            State(
                "per_day",
                key={"day": "date"},
                values={"orders": Count(), "revenue": Sum("price", "numeric(14,2)")},
                database="warehouse",
            ),
        ],
        steps=[
            Step("customers", lambda batch: {"per_customer": batch}, feeds=["per_customer"]),
            Step("days", lambda batch: {"per_day": batch}, feeds=["per_day"]),
        ],
        max_spout_pending=2,
    )


@pytest.fixture
def emitted(tmp_path, python_pipeline, warehouse):
    for number in (1, 2):
        write_parquet(tmp_path / f"1997-{number:02}" / "a.parquet", TWENTY)
    shop = python_pipeline(spread(tmp_path))
    shop.emit(month(1997, 1))
    assert shop.emit(month(1997, 2)) == [1, 2]
    return shop


def test_each_database_seals_its_own_part_and_has_the_same_commit_number(
    emitted, connection, warehouse
):
    """An attempt is processed only when every database has sealed it."""
    grant = emitted.begin(1, "customers")
    emitted.run_step(grant, "customers")
    emitted.runner.end_step(grant, "customers")
    assert emitted.begin(1, "days") == grant
    emitted.run_step(grant, "days")
    execute(warehouse, "DELETE FROM reliability.ack WHERE partition = 0")
    with pytest.raises(AttemptIncomplete, match="per_day"):
        emitted.runner.end_step(grant, "days")
    assert rows(connection, STATUS) == [(1, 0, "FAILED")]
    emitted.transact(1)
    assert rows(connection, STATUS) == [(1, 0, "FAILED"), (1, 1, "COMMITTED")]
    swept = sweep(connection, "shop", Leases(), clean=True)
    assert [str(attempt) for attempt in swept.cleaned] == ["1:0"]
    left = "SELECT DISTINCT _attempt_id FROM reliability_contribution.shop__per_day"
    assert rows(warehouse, left) == [(1,)]
    assert not sweep(connection, "shop", Leases(), clean=True)
    assert rows(connection, HERE) == [(0, 7, 1), (1, 7, 1), (2, 6, 1)]
    assert rows(warehouse, THERE) == [(20, Decimal("190.00"), 1)]
    assert rows(connection, C) == rows(warehouse, C) == [(1,)]
    assert rows(connection, "SELECT sink FROM reliability.ack GROUP BY 1") == [("per_customer",)]
    assert rows(warehouse, "SELECT sink FROM reliability.ack GROUP BY 1") == [("per_day",)]
    emitted.transact(2)
    emitted.replay(1)
    assert rows(warehouse, THERE) == [(40, Decimal("380.00"), 2)]
    assert rows(connection, C) == rows(warehouse, C) == [(3,)]


def test_a_begin_that_died_before_it_told_every_database_is_made_good(
    emitted, connection, warehouse
):
    """C6: else Spark would run for an attempt that the other database has never heard of."""
    work, request_id = emitted.work("days"), emitted.request(1, "days")
    emitted.runner.begin(1, request_id, work)
    execute(
        warehouse,
        "DELETE FROM reliability.sink; DELETE FROM reliability.attempt_event;"
        "DELETE FROM reliability.attempt; DELETE FROM reliability.transaction",
    )
    emitted.transact(1)
    assert rows(warehouse, THERE) == [(20, Decimal("190.00"), 1)]
    assert rows(connection, STATUS) == [(1, 0, "COMMITTED")]


def with_states(emitted, change):
    """The same run, by a process whose code has changed the states."""
    old = emitted.runner.topology
    states = [changed for state in old.states if (changed := change(state))]
    feeds = {state.name for state in states}
    steps = [step for step in old.steps if feeds.issuperset(step.feeds)]
    code = replace(old, states=states, steps=steps)
    return replace(emitted, runner=TransactionRunner(code, emitted.runner.connection))


def test_code_whose_states_elsewhere_are_others_begins_stages_and_seals_nothing(
    emitted, warehouse, monkeypatch
):
    """C4, C11: a value that it no longer had was missing in sums, and the accounts balanced."""
    emitted.transact(1)
    lacks_value = r"database warehouse: .* value revenue is removed"
    fewer = with_states(
        emitted, lambda one: replace(one, values={"orders": Count()}) if one.database else one
    )
    none = with_states(emitted, lambda one: None if one.database else one)
    for code, said in ((fewer, lacks_value), (none, r"\['warehouse'\], and now has them in \[\]")):
        with pytest.raises(StateDefinitionChanged, match=said):
            code.begin(2, "days" if code is fewer else "customers")
    grant = emitted.begin(2, "days")
    context = SimpleNamespace(applicationId="application", uiWebUrl=None)
    spark: Any = SimpleNamespace(sparkContext=context)
    monkeypatch.setattr(driver, "process_id", lambda _: 1)
    with pytest.raises(StateDefinitionChanged, match=lacks_value):
        driver.process_with(spark, emitted.runner.connection, fewer.runner.topology, grant, "days")
    with pytest.raises(AttemptIncomplete):
        emitted.runner.end_step(grant, "days")
    for step in ("days", "customers"):
        grant = emitted.begin(2, step)
        emitted.run_step(grant, step)
        emitted.runner.end_step(grant, step)
    with pytest.raises(StateDefinitionChanged, match=r"begun by code with .* 'per_day'\], and"):
        with_states(emitted, lambda one: one if one.database else None).runner.seal(grant, "days")
    assert rows(warehouse, THERE) == [(20, Decimal("190.00"), 1)]
    emitted.transact(2)
    assert rows(warehouse, THERE) == [(40, Decimal("380.00"), 2)]


@pytest.mark.parametrize("verb", [park, skip])
def test_a_verb_that_was_killed_between_two_databases_is_to_be_repeated(
    emitted, connection, monkeypatch, verb
):
    """C7: the advice was resume-runs, which processes the batch that it set aside."""
    emitted.runner.close(1, emitted.run, "its file is broken")
    with monkeypatch.context() as patch:
        patch.setattr(park_module, "mirror_grant", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            verb(connection, "shop", 1, "its file is broken")
    execute(connection, "UPDATE reliability.attempt SET lease_until = now()")
    sweep(connection, "shop", clean=True)
    with connection.transaction() as tx:
        standing = find_standing(tx, "shop")
    assert standing is not None
    assert standing.blocked is not None
    assert f"call `reliability {verb.__name__} shop 1" in standing.blocked.advice("shop")
    verb(connection, "shop", 1, "its file is broken")
    assert rows(connection, C) == [(1,)]


# --- after a failover ----------------------------------------------------------------------------


@pytest.fixture
def processed(connection, warehouse):
    """What is processed in both databases, and not committed."""
    shop = Shop(connection, elsewhere="warehouse")
    shop.deliver(made(1))
    shop.process(1)
    return shop


def test_a_sweep_keeps_what_only_the_ledger_knows_nothing_of(processed, connection, warehouse):
    """C6: where the ledger had lost its last commit, it deleted what readers saw elsewhere."""
    kept = "SELECT count(*) FROM reliability_contribution.shop__recomputed"
    connection.close()
    with new_database(database_of(connection.dsn)) as copy, LedgerConnection(copy) as behind:
        drain(connection, "shop")
        before = rows(warehouse, kept)
        behind.run("record_timeline", timeline=0)
        assert sweep(behind, "shop", clean=True).cleaned == []
    assert rows(warehouse, kept) == before != [(0,)]


def test_who_fences_every_attempt_lets_no_driver_decide_on_its_votes(
    processed, connection, monkeypatch
):
    """C6: the ledger had fenced what the other database committed, for good."""
    save = Checkpoint._save_next

    def save_after_a_fence(self, message):
        if message.action is CheckpointAction.PREPARE:
            monkeypatch.setattr(Checkpoint, "_save_next", save)
            with LedgerConnection(connection.dsn) as other, other.transaction() as tx:
                assert len(fence_every_attempt(tx)) == 1
        return save(self, message)

    monkeypatch.setattr(Checkpoint, "_save_next", save_after_a_fence)
    with suppress(CheckpointTakenOver):
        drain(connection, "shop")
    processed.transact(1)
    assert rows(connection, STATUS) == [(1, 0, "FENCED"), (1, 1, "COMMITTED")]
    assert [one.is_exact for one in verify(connection, "shop")] == [True] * 6
