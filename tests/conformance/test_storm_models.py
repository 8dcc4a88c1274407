"""Random vectors from small models of the originals, played against what the pipeline runs.

A strict vector has only what the original and we do the same, and has to pass. Another one has
late, repeated and lost messages too: what differs then has to be covered by a rule.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from reliability.core.checkpoint import Answer, Drive
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from tests.conformance.adapters import ADAPTERS
from tests.conformance.bench import Bench, open_bench
from tests.conformance.comparison import Outcome, Verdict
from tests.conformance.one_state import apply_again
from tests.conformance.runner import run_file
from tests.conformance.storm import (
    acker,
    checkpoint,
    coordinator,
    legacy_coordinator,
    stateful_bolt,
    transactional,
    trident_state,
)

SEEDS = range(10)
VECTORS, KEY_VALUES = "vectors", "key_value_state_vectors"
MODELS: list[tuple[str, str, Callable[..., dict[str, Any]]]] = [
    ("Acker", VECTORS, acker.vector),
    ("CheckpointSpout", VECTORS, checkpoint.vector),
    ("MasterBatchCoordinator", VECTORS, coordinator.vector),
    ("TransactionalSpoutCoordinator", VECTORS, legacy_coordinator.vector),
    ("StatefulBoltExecutor", VECTORS, stateful_bolt.vector),
    ("KeyValueState", KEY_VALUES, stateful_bolt.key_value_vector),
    ("OpaqueMap/TransactionalMap", VECTORS, trident_state.vector),
    ("transactional topology end to end", VECTORS, transactional.accumulators),
]
IDS = [component for component, _, _ in MODELS]


@pytest.fixture(scope="module")
def bench(environment) -> Iterator[Bench]:
    """Databases; no random vector needs Spark."""

    def no_spark():
        raise AssertionError("there is no Spark here")

    with open_bench(no_spark) as bench:
        yield bench


@pytest.mark.parametrize(("component", "section", "draw"), MODELS, ids=IDS)
def test_what_is_the_same_in_the_model_passes(component, section, draw, bench, tmp_path):
    vectors = [draw(Random(seed), strict=True) for seed in SEEDS]
    data = {"component": component, section: vectors}
    assert _verdicts(bench, tmp_path, data) == {Verdict.PASS: len(SEEDS)}


@pytest.mark.slow
@pytest.mark.parametrize(("component", "section", "draw"), MODELS, ids=IDS)
def test_where_the_model_differs_a_rule_says_so(component, section, draw, bench, tmp_path):
    vectors = [draw(Random(seed), strict=False) for seed in SEEDS]
    found = _verdicts(bench, tmp_path, {"component": component, section: vectors})
    assert found[Verdict.PASS] + found[Verdict.DIFFERS] == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_spout_cuts_as_the_model_does(seed, bench, tmp_path):
    data = {"component": "TransactionalGlobalCount", **transactional.takes(Random(seed))}
    assert _verdicts(bench, tmp_path, data) == {Verdict.PASS: 1}


@contextmanager
def _kept(connection: LedgerConnection) -> Iterator[DatabaseTransaction]:
    with connection.transaction() as tx:
        yield tx


BROKEN: dict[str, tuple[str, str, Any]] = {
    "acks are not recorded": (
        "Acker",
        "reliability.spark.stage.StageTask._acknowledge",
        lambda *_: None,
    ),
    "a driver goes on where another one was": (
        "CheckpointSpout",
        "reliability.transaction.commit.checkpoint_driver.Drive",
        partial(Drive, recovering=False),
    ),
    "any txid may commit": (
        "MasterBatchCoordinator",
        "reliability.core.coordinator.Snapshot.may_commit",
        property(lambda snapshot: snapshot.live is not None and snapshot.live.is_processed),
    ),
    "a fail changes nothing": (
        "TransactionalSpoutCoordinator",
        "reliability.transaction.process.attempt_messages.end_attempt",
        lambda *_, **__: True,
    ),
    "a participant believes every driver": (
        "StatefulBoltExecutor",
        "reliability.transaction.commit.participant.judge",
        lambda *_, **__: Answer.APPLY,
    ),
    "what was voted on stays": (
        "KeyValueState",
        "reliability.transaction.commit.participant.rolled_back",
        _kept,
    ),
    "what is applied is applied again": (
        "OpaqueMap/TransactionalMap",
        "reliability.states.kinds.stored.StoredState.replay",
        apply_again,
    ),
    "all acks are lost": (
        "transactional topology end to end",
        "reliability.spark.stage.StageTask._acknowledge",
        lambda *_: None,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_product_does_not_pass(defect, bench, tmp_path, monkeypatch):
    component, target, instead = BROKEN[defect]
    [(section, draw)] = [(section, draw) for name, section, draw in MODELS if name == component]
    vectors = [draw(Random(seed), strict=True) for seed in SEEDS]
    monkeypatch.setattr(target, instead)
    outcomes = _play(bench, tmp_path, {"component": component, section: vectors})
    assert Verdict.FAIL in [one.verdict for one in outcomes]


def _verdicts(bench: Bench, folder: Any, data: dict[str, Any]) -> Counter[Verdict]:
    outcomes = _play(bench, folder, data)
    assert [one for one in outcomes if one.verdict is Verdict.FAIL] == []
    return Counter(one.verdict for one in outcomes)


def _play(bench: Bench, folder: Any, data: dict[str, Any]) -> list[Outcome]:
    path = folder / "vectors.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return list(run_file(path, ADAPTERS, bench))
