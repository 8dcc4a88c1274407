"""C1 to C6 on the real ledger, without Spark: how what is processed comes to count."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from psycopg2.sql import SQL

from reliability.core.errors import LedgerCorruption, StateDefinitionChanged
from reliability.core.state import State
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import lock_topology
from reliability.transaction.commit.committer import drain
from tests.simulation.contents import TOTALS
from tests.support.fix_postgres import wait_until_it_waits
from tests.support.runner import TransactionRunner


def processed(world, *txids):
    for txid in txids:
        world.work("A", txid, "process")
    return world


def test_what_is_read_under_the_lock_is_read_after_the_wait(new_world):
    """C1: whoever was waited for may have committed it; 10 would be written over 30."""
    world = processed(new_world(items=(2,)), 1)

    def wait_and_drain():
        with closing(LedgerConnection(world.connection.dsn, "who waits")) as connection:
            return drain(connection, world.name)

    with ThreadPoolExecutor() as thread, LedgerConnection(world.connection.dsn) as another:
        with another.transaction() as tx:
            lock_topology(tx, world.name)
            done = thread.submit(wait_and_drain)
            wait_until_it_waits(world.connection, "who waits")
            fail = "UPDATE reliability.attempt SET status = 'FAILED', reason_code = 'X'"
            tx.run(SQL(f"{fail} WHERE topology = %(topology)s"), topology=world.name)
        assert done.result(timeout=30) == []
    [row] = world.execute("SELECT commit_number FROM reliability.topology")
    assert row["commit_number"] == 0


def test_position_decides_and_every_change_takes_the_next_c(new_world):
    """C2: at curr_txid it is a first commit, below a swap, and nothing else has its turn."""
    world = processed(new_world(items=(2, 2, 2), pending=3), 3, 1)
    assert [str(c.attempt) for c in world.runner.commit(3)] == ["1:0"]
    world.clear("A", 1)
    processed(world, 1, 2)
    done = world.runner.commit(1)
    assert [(str(c.attempt), c.commit_number, c.replaced_attempt) for c in done] == [
        ("1:1", 2, 0),  # after a first commit it is a replay's turn
        ("2:0", 3, None),
        ("3:0", 4, None),
    ]


def test_a_row_that_is_not_older_than_the_txid_stops_the_commit(new_world):
    """C3: ON CONFLICT … WHERE would pass over it without a word."""
    world = new_world(items=(3, 3))
    world.work("A", 1, "commit")
    processed(world, 2)
    world.execute("UPDATE {totals} SET _txid = 9")
    with pytest.raises(LedgerCorruption, match=TOTALS):
        world.runner.commit(2)


def test_a_state_that_has_the_commit_number_already_is_not_changed_again(new_world):
    """C3: the deciding check is per state and c."""
    world = processed(new_world(items=(2,)), 1)
    world.execute("UPDATE reliability.state SET commit_number = 1 WHERE state = 'best'")
    with pytest.raises(LedgerCorruption, match="advance_state"):
        world.runner.commit(1)


def test_an_attempt_is_not_granted_for_other_states_than_the_ledgers(new_world):
    """C4: sealed for states of another shape it could never be committed."""
    world = processed(new_world(items=(2, 2)), 1)
    world.runner.commit(1)
    topology = world.runner.topology
    other = State(TOTALS, {"key": "text"}, topology.states[0].values, topology.states[0].table)
    changed = replace(topology, states=[other, topology.states[1]], process=None)
    world.runner = TransactionRunner(changed, world.connection, world.runner.leases)
    with pytest.raises(StateDefinitionChanged, match=TOTALS):
        world.claim("A", 2, "process")
    assert world.statuses() == {"1:0": "COMMITTED"}
