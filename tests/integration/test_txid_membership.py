"""E1 and E4 on the real ledger: what belongs to a txid."""

from __future__ import annotations

import pytest

from reliability.core.errors import LedgerCorruption
from reliability.core.spout import SpoutKind


def items(world):
    return {i["item"]: i["txid"] for i in world.look().items}


def batches(world):
    """Which item each attempt reads: (txid, attempt_id) -> offset."""
    world.look()
    return {
        (a["txid"], a["attempt_id"]): [item["offset"] for item in a["batch_meta"] or []]
        for a in world.seen.attempts
    }


def test_an_item_that_another_run_takes_meanwhile_has_one_txid(new_world):
    """E1: what was planned outside the lock is compared again under it."""
    world = new_world(items=(2,), shared=True)
    world.source.items[0].append(1)
    world.source.items[0].append(3)
    with world.meanwhile(lambda: world.emit("B")):
        assert world.emit("A") == [1, 2, 3]
    assert items(world) == {"memory:0:0": 1, "memory:0:1": 2, "memory:0:2": 3}


def test_a_transactional_batch_is_frozen_and_an_opaque_one_is_the_attempts(new_world):
    """E4: an opaque spout's new attempt may see another batch; it freezes with the commit."""
    frozen = new_world(spout=SpoutKind.TRANSACTIONAL)
    opaque = new_world(spout=SpoutKind.OPAQUE)
    assert [t["batch_meta"] is None for t in frozen.look().transactions] == [False, False]
    assert [t["batch_meta"] is None for t in opaque.look().transactions] == [True, True]
    opaque.work("A", 1, "commit")
    assert [t["batch_meta"] is None for t in opaque.look().transactions] == [False, True]
    assert items(opaque) == {"memory:0:0": 1}


def test_an_opaque_batch_starts_where_its_predecessors_attempt_ended(new_world):
    """E4: else both would read the same rows, or rows between them would be nobody's."""
    world = new_world(spout=SpoutKind.OPAQUE, items=(2, 2, 2), pending=3)
    for txid in (1, 2, 3):
        world.claim("A", txid, "process")
    assert batches(world) == {(1, 0): [0], (2, 0): [1], (3, 0): [2]}


def test_an_opaque_attempt_falls_with_the_one_that_its_batch_starts_from(new_world):
    """E4: also when it was PROCESSED; and its own task begins anew when the predecessor has."""
    world = new_world(spout=SpoutKind.OPAQUE, items=(2, 2), pending=2)
    world.claim("A", 1, "process")
    world.work("A", 2, "process")
    world.clear("A", 1)
    world.claim("A", 1, "process")
    found = {(a["txid"], a["attempt_id"]): a["reason_code"] for a in world.look().attempts}
    assert found[2, 0] == "PREDECESSOR_FAILED"
    world.work("A", 1, "process")
    for txid in (1, 2):
        world.work("A", txid, "commit")
    assert world.look().curr_txid == 3


def test_a_batch_that_names_an_attempt_which_did_not_commit_is_refused(new_world):
    """E4: its rows would be counted twice, or never."""
    world = new_world(spout=SpoutKind.OPAQUE, items=(2, 2), pending=2)
    for txid in (1, 2):
        world.work("A", txid, "process")
    world.execute("UPDATE reliability.attempt SET predecessor_attempt = 7 WHERE txid = 2")
    with pytest.raises(LedgerCorruption, match="does not start where"):
        world.runner.commit(2)
