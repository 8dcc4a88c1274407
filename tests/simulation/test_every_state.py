"""Every state of the model in tests/simulation/every_state.py: the guarantees hold in each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability.core.coordinator import Snapshot
from reliability.core.plan import next_plan
from tests.simulation import every_state
from tests.simulation.every_state import World, search

WHOLE = World(faults=2, replays=1, rollbacks=1, parks=1)
PARTS = {
    "faults, a replay, a park": World(faults=1, replays=1, parks=1),
    "faults, a rollback": World(faults=1, rollbacks=1),
}


@pytest.mark.parametrize("part", PARTS)
def test_no_state_breaks_a_guarantee_or_is_stuck(part):
    found = search(PARTS[part])
    assert found.ends > 0
    assert found.stuck == ()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_state_of_the_whole_space_breaks_a_guarantee_or_is_stuck():
    found = search(WHOLE)
    print(f"{found.states:,} states, {found.steps:,} steps, {found.ends:,} with all committed")
    assert found.stuck == ()


def test_a_commit_out_of_order_is_found(monkeypatch):
    """G2."""

    def last_first(position):
        last = position.processed[-1:]
        return next_plan(replace(position, curr_txid=last[0].txid if last else 1))

    monkeypatch.setattr(every_state, "next_plan", last_first)
    with pytest.raises(AssertionError, match="G2"):
        search(World())


def test_a_message_of_a_fenced_attempt_that_counts_is_found(monkeypatch):
    """G4."""
    monkeypatch.setattr(every_state, "is_message_of", lambda live, attempt_id: True)
    with pytest.raises(AssertionError, match="V1"):
        search(World(faults=1))


def test_an_attempt_beyond_the_window_is_found(monkeypatch):
    monkeypatch.setattr(Snapshot, "may_process", True)
    with pytest.raises(AssertionError, match="begins in the window"):
        search(World())
