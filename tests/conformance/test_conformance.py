"""The vectors, and that the runner can fail: a wrong number, an unknown op, a defect of our own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reliability.core.checkpoint import Answer, CheckpointAction, Drive
from reliability.transaction.commit.saved_checkpoint import read_checkpoint, save_checkpoint
from tests.conformance import __main__ as command
from tests.conformance import made_up
from tests.conformance.adapters import ADAPTERS
from tests.conformance.bench import Bench, open_bench
from tests.conformance.comparison import Comparison, Failed, Outcome, Rule, Verdict
from tests.conformance.one_state import apply_again
from tests.conformance.runner import lines, run_file
from tests.conformance.vectors import FOLDER

FILES = sorted(FOLDER.glob("*.json"))
PASS, DIFFERS, FAIL = Verdict.PASS, Verdict.DIFFERS, Verdict.FAIL
PLAYED = {  # how many vectors pass, and how many differ on purpose
    "acker": (12, 1),
    "checkpoint_spout": (11, 2),
    "checkpoint_state": (18, 0),
    "coordinator": (9, 6),
    "global_count": (3, 3),
    "stateful_bolt": (12, 3),
    "transactional_topology": (1, 3),
    "trident_state": (10, 7),
}


@pytest.fixture(scope="module")
def bench(environment) -> Iterator[Bench]:
    """Databases for all vectors; their batches go through Spark only in `-m tests.conformance`."""
    with open_bench(lambda: None) as bench:
        yield bench


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_product_does_what_was_recorded_or_differs_on_purpose(file, bench):
    outcomes = list(run_file(file, ADAPTERS, bench))
    assert [one for one in outcomes if one.verdict is FAIL] == []
    found = Counter(one.verdict for one in outcomes)
    assert (found[PASS], found[DIFFERS]) == PLAYED[file.stem]
    assert all(one.why for one in outcomes if one.verdict is DIFFERS), "a difference has a reason"


def test_names_excuse_nothing(bench, tmp_path):
    """The same vectors under other names, in a file of another name."""
    renamed = _data("trident_state")
    for number, vector in enumerate(renamed["vectors"]):
        vector["name"] = f"vector {number}"
    found = Counter(one.verdict for one in _play(bench, tmp_path, renamed))
    assert (found[PASS], found[DIFFERS], found[FAIL]) == (*PLAYED["trident_state"], 0)


# --- vectors that are in no file -----------------------------------------------------------------

ACKER, STATES = "Acker", "OpaqueMap/TransactionalMap"
SPOUT, BOLT = "CheckpointSpout", "StatefulBoltExecutor"
MADE_UP = [
    (ACKER, made_up.UNFINISHED, PASS, ""),
    (ACKER, made_up.SECOND_INIT, DIFFERS, "A13"),
    (ACKER, made_up.ACK_DOES_NOT_REFRESH, DIFFERS, "A15"),
    (ACKER, made_up.SECOND_ACK, DIFFERS, "un-acks"),
    (ACKER, made_up.COLLIDING_IDS, DIFFERS, "not random"),
    (ACKER, made_up.JSTORM_FORGETS_THE_FAIL, DIFFERS, "dialect jstorm"),
    (SPOUT, made_up.FOUND_PREPARING, PASS, ""),
    (SPOUT, made_up.INTERVAL, PASS, ""),
    (SPOUT, made_up.SECOND_PREPARE_ACK, DIFFERS, "C8"),
    (BOLT, made_up.INIT_IS_PASSED_OVER, DIFFERS, "E4"),
    (BOLT, made_up.LEAK_AFTER_ROLLBACK, DIFFERS, "K3"),
    (STATES, made_up.OLDER_TXID, DIFFERS, "O3"),
    (STATES, made_up.OLDER_TXID_IS_AN_ERROR, PASS, ""),
    (STATES, made_up.CUT_OFF, DIFFERS, "cut off"),
]


@pytest.mark.parametrize(("component", "vector", "verdict", "why"), MADE_UP)
def test_vectors_that_are_in_no_file_run_unchanged(
    component, vector, verdict, why, bench, tmp_path
):
    section = "key_value_state_vectors" if why == "K3" else "vectors"
    [outcome] = _play(bench, tmp_path, {"component": component, section: [vector]})
    assert outcome.verdict is verdict, outcome
    assert why in "".join(outcome.why)


def test_another_take_of_other_data(bench, tmp_path):
    data: dict[str, Any] = {
        "component": "TransactionalGlobalCount",
        "data": {"0": ["a", "b", "c"], "1": ["d"]},
        "partition_take_per_batch": 1,
        "other_takes": {"1": {"batch_counts": [2, 1, 1, 0]}, "2": {"batch_counts": [3, 1]}},
    }
    assert [one.verdict for one in _play(bench, tmp_path, data)] == [PASS]
    data["other_takes"]["2"]["batch_counts"] = [3, 2]
    assert [one.verdict for one in _play(bench, tmp_path, data)] == [FAIL]


# --- what has to fail ----------------------------------------------------------------------------

PAST, LEGACY = "restart_prunes_attempts_outside_window", "upstream_test_coordinator"
BARRIER = "barrier_leftover_count_from_failed_attempt"
RESTART, OPAQUE = "test_transactional_topology_restart", "test_opaque_transactional_topology"
WRONG: list[tuple[str, str, tuple[Any, ...], Any]] = [
    ("acker", "single_edge", ("expect", "storm", 0, "entries", "1", "ack_val"), "4"),
    ("checkpoint_spout", "testPrepare", ("steps", 2, "expect", "saved", "txid"), 1),
    ("checkpoint_spout", "testCommit", ("steps", 4, "expect", "emit", 0, "action"), "PREPARE"),
    ("coordinator", "is_ready_gates_new_batches", ("steps", 3, "expect", "emit", 1, 2), 1),
    ("coordinator", "default_max_pending_is_1", ("steps", 2, "expect", "emit", 0, 0), "$batch"),
    ("coordinator", PAST, ("steps", 0, "expect", "attempt_ids", "6"), 2),
    ("coordinator", LEGACY, ("steps", 7, "expect", "emit", 1, "committed_txid"), 2),
    ("checkpoint_spout", "crash_in_preparing", ("steps", 3, "expect", "recovering"), False),
    ("checkpoint_spout", "crash_in_committing", ("steps", 6, "expect", "emit", 0, "txid"), 1),
    ("stateful_bolt", BARRIER, ("steps", 3, "expect", "waiting"), 3),
    ("transactional_topology", RESTART, ("second_run_counts_multiset",), [0, 0, 3, 0]),
    ("transactional_topology", OPAQUE, ("commits", "2", "dog"), 2),
    ("trident_state", "doc_transactional_three_keys", ("steps", 5, "expect", "value"), 5),
    ("stateful_bolt", "testCommit", ("steps", 1, "expect", "last_txid"), 1),
    ("stateful_bolt", "testRollback", ("steps", 1, "expect", "events"), ["fail(cp)"]),
    ("trident_state", "testOpaqueMap", ("steps", 2, "expect", "value"), 2),
]


@pytest.mark.parametrize(("stem", "name", "path", "value"), WRONG)
def test_one_wrong_number_fails(stem, name, path, value, bench, tmp_path):
    data, vector = _only(stem, name)
    _put(vector, path, value)
    [outcome] = _play(bench, tmp_path, data)
    assert outcome.verdict is FAIL
    assert "expected" in outcome.why[0], "it says where, and what differs"


def test_a_wrong_transition_fails(bench, tmp_path):
    for recovering in (True, False):
        data = _data("checkpoint_state")
        [one] = [v for v in data["vectors"] if (v["txid"], v["recovering"]) == (0, recovering)][:1]
        one["expect"]["next_txid"] += 1
        assert FAIL in [one.verdict for one in _play(bench, tmp_path, data)]


@pytest.mark.parametrize(
    ("stem", "name", "path"),
    [
        ("acker", "single_edge", ("ops", 0, "op")),
        ("checkpoint_spout", "testPrepare", ("steps", 2, "op")),
        ("checkpoint_spout", "crash_in_preparing", ("steps", 3, "op")),
        ("coordinator", "is_ready_gates_new_batches", ("steps", 1, "op")),
        ("coordinator", LEGACY, ("steps", 0, "op")),
        ("coordinator", LEGACY, ("dialect",)),
        ("stateful_bolt", "testCommit", ("steps", 1, "op")),
        ("stateful_bolt", "testCommit", ("steps", 1, "action")),
        ("stateful_bolt", "commit_without_prepare_is_error", ("steps", 0, "op")),
        ("trident_state", "testOpaqueMap", ("steps", 1, "op")),
        ("trident_state", "legacy_strict", ("steps", 0, "op")),
        ("trident_state", "trident_unstrict", ("steps", 8, "op")),
        ("transactional_topology", OPAQUE, ("sequence",)),
    ],
)
def test_an_unknown_op_fails(stem, name, path, bench, tmp_path):
    data, vector = _only(stem, name)
    _put(vector, path, "explode")
    [outcome] = _play(bench, tmp_path, data)
    assert outcome.verdict is FAIL
    assert "explode" in outcome.why[0]


@pytest.mark.parametrize(
    "data",
    [
        {"component": "DRPCServer", "vectors": [{}]},
        {"component": "Acker", "orphans": [{"op": "ack"}]},
        {"component": "Acker", "vectors": [{"ops": []}]},
        {"component": "Acker", "vectors": [{"ops": [], "expect": {"heron": []}}]},
        {"component": "Acker", "vectors": []},
        {"vectors": []},
    ],
    ids=["component", "section", "nothing is expected", "dialect", "no vectors", "no component"],
)
def test_what_is_unknown_fails(data, bench, tmp_path):
    assert [one.verdict for one in _play(bench, tmp_path, data)] == [FAIL]


BROKEN: dict[
    str, tuple[tuple[str, Any], str, Any]
] = {  # a file and a vector in it, or one of made_up
    "acks are not recorded": (
        ("acker", "single_edge"),
        "reliability.spark.stage.stage_task.StageTask._acknowledge",
        lambda *_: None,
    ),
    "what was acked is not compared": (
        (ACKER, made_up.UNFINISHED),
        "reliability.transaction.process.seal.check_accounting",
        lambda *_: None,
    ),
    "any txid may commit": (
        ("coordinator", "fail_processed_later_tx_is_reprocessed_too"),
        "reliability.core.coordinator.Snapshot.may_commit",
        property(lambda snapshot: snapshot.live is not None and snapshot.live.is_processed),
    ),
    "a late ack counts": (
        (SPOUT, made_up.SECOND_PREPARE_ACK),
        "reliability.core.checkpoint.Drive.ack",
        lambda drive, _, name: replace(drive, votes=drive.votes | {name}),
    ),
    "a participant believes every driver": (
        ("stateful_bolt", "old_txid_ignored_but_acked"),
        "reliability.transaction.commit.participant.judge",
        lambda *_, **__: Answer.APPLY,
    ),
    "a driver goes on where another one was": (
        ("checkpoint_spout", "crash_in_preparing"),
        "reliability.transaction.commit.checkpoint_driver.Drive",
        partial(Drive, recovering=False),
    ),
    "a driver that was given up decides": (
        ("checkpoint_spout", "crash_in_preparing"),
        "reliability.transaction.commit.checkpoint_driver.save_checkpoint",
        lambda tx, name, _, new: save_checkpoint(tx, name, read_checkpoint(tx, name), new),
    ),
    "what is decided is taken back": (
        ("checkpoint_spout", "crash_in_committing"),
        "reliability.core.checkpoint.CheckpointState.next_action",
        lambda *_: CheckpointAction.ROLLBACK,
    ),
    "the window is one wider": (
        ("coordinator", "default_max_pending_is_1"),
        "reliability.core.coordinator.Snapshot.may_process",
        property(lambda snapshot: snapshot.txid <= snapshot.curr_txid + 1),
    ),
    "leases are for ever": (
        ("coordinator", PAST),
        "tests.support.runner.sweep",
        lambda *_, **__: None,
    ),
    "a fail changes nothing": (
        ("coordinator", LEGACY),
        "reliability.transaction.process.attempt_messages.end_attempt",
        lambda *_, **__: True,
    ),
    "a source that is not ready emits": (
        ("coordinator", LEGACY),
        "reliability.transaction.emit.emission._Emission.check_ready",
        lambda *_: None,
    ),
    "one vote is enough": (
        ("stateful_bolt", BARRIER),
        "reliability.core.checkpoint.Drive.lacks",
        property(lambda drive: frozenset() if drive.votes else drive.participants),
    ),
    "what was taken is free after a restart": (
        ("transactional_topology", RESTART),
        "reliability.transaction.emit.source_items.LedgerItems.which",
        lambda *_: set(),
    ),
    "a batch does not start where the one before it ended": (
        ("transactional_topology", OPAQUE),
        "reliability.transaction.process.opaque_batch.with_batches",
        lambda taken, _: taken,
    ),
    "what is applied is applied again": (
        ("trident_state", "doc_transactional_three_keys"),
        "reliability.states.kinds.stored.StoredState.replay",
        apply_again,
    ),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_product_fails(defect, bench, tmp_path, monkeypatch):
    (place, vector), target, instead = BROKEN[defect]
    monkeypatch.setattr(target, instead)
    is_recorded = isinstance(vector, str)
    data = _only(place, vector)[0] if is_recorded else {"component": place, "vectors": [vector]}
    [outcome] = _play(bench, tmp_path, data)
    assert outcome.verdict is FAIL


# --- comparing and telling -----------------------------------------------------------------------


def test_a_rule_excuses_its_op_its_field_and_what_follows_in_its_scope():
    compared = Comparison([Rule("ack", "why", lambda facts: facts["late"], field="val")])
    compared.at(0, "ack", late=True)
    compared.field("val", 1, 2, "root 1")
    compared.at(1, "init", late=False)
    compared.field("emit", "ack", None, "root 1")
    with pytest.raises(Failed, match=r"op 1 init: emit: expected \"ack\", found null"):
        compared.field("emit", "ack", None, "root 2")
    assert compared.outcome("f", "v").verdict is DIFFERS


def test_no_rule_no_quirk_and_no_dialect_excuse_an_expectation_of_our_own():
    compared = Comparison([Rule("ack", "why")], quirk="a defect", dialect="another")
    compared.at(0, "ack")
    compared.field("val", 1, 2)
    with pytest.raises(Failed, match="our own expectation is not met: order"):
        compared.ours(False, "order")


def test_a_vector_of_which_nothing_is_compared_does_not_pass():
    compared = Comparison([])
    assert compared.outcome("f", "v").verdict is FAIL
    compared.no_use("it has no use")
    assert compared.outcome("f", "v") == Outcome("f", "v", DIFFERS, ("it has no use",))


def test_the_summary_says_how_many_were_excused():
    told = [Outcome("f", "a", PASS), Outcome("f", "b", DIFFERS, ("why",)), Outcome("f", "c", PASS)]
    assert list(lines(told)) == [
        "f",
        "  pass                a",
        "  differs on purpose  b",
        "      why",
        "  pass                c",
        "3 vectors: 2 pass, 1 differ on purpose (33 %), 0 FAIL",
    ]


def test_the_command_exits_with_1_if_a_vector_fails(environment, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_server", nullcontext)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(_data("checkpoint_state")))
    bad.write_text(json.dumps({"component": "nobody knows it"}))
    assert command.main([good]) == 0
    assert command.main([good, bad, tmp_path / "missing.json"]) == 1
    assert "2 FAIL" in capsys.readouterr().out.splitlines()[-1]


# --- pieces --------------------------------------------------------------------------------------


def _data(stem: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / f"{stem}.json").read_text(encoding="utf-8"))
    return data


def _only(stem: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a file with one of its vectors alone, and that vector."""
    data = _data(stem)
    for section, vectors in data.items():
        for vector in vectors if isinstance(vectors, list) else []:
            if isinstance(vector, dict) and vector.get("name") == name:
                return {"component": data["component"], section: [vector]}, vector
    raise AssertionError(f"{stem} has no {name}")


def _put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for part in path[:-1]:
        value = value[part]
    assert value[path[-1]] != new
    value[path[-1]] = new


def _play(bench: Bench, folder: Any, data: dict[str, Any]) -> list[Outcome]:
    path = folder / "vectors.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return list(run_file(path, ADAPTERS, bench))
