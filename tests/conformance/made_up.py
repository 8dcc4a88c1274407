"""Vectors that are in no file: what other files of the format may hold, written down briefly."""

from __future__ import annotations

from typing import Any

Vector = dict[str, Any]

# --- acker ---------------------------------------------------------------------------------------


def acker(
    *told: tuple[dict[str, Any], Any, dict[str, str]], dialect: str = "storm", **more: Any
) -> Vector:
    """Return a vector of (op, emitted type, root -> ack_val); a `?` before it: not initialised."""
    observed = [
        {
            "emit": [{"to_task": 7, "type": emit, "root": op["root"]}] if emit else [],
            "pending": len(entries),
            "entries": {root: _entry(val) for root, val in entries.items()},
        }
        for op, emit, entries in told
    ]
    ops = [op for op, _, _ in told]
    return {"ops": ops, "expect": {dialect: observed}, **more}


def _entry(val: str) -> dict[str, Any]:
    known = not val.startswith("?")
    task = 7 if known else None
    return {"ack_val": val.lstrip("?"), "spout_task": task, "failed": False, "bucket": 0}


def init(val: int) -> dict[str, Any]:
    return {"op": "init", "root": 1, "val": str(val), "spout_task": 7}


def ack(val: int) -> dict[str, Any]:
    return {"op": "ack", "root": 1, "val": str(val)}


ROTATE = {"op": "rotate"}
FAIL = {"op": "fail", "root": 1}

UNFINISHED = acker((init(5), None, {"1": "5"}), (ack(3), None, {"1": "6"}))
SECOND_INIT = acker((init(5), None, {"1": "5"}), (init(5), "ack", {}))
ACK_DOES_NOT_REFRESH = acker(
    (init(5), None, {"1": "5"}),
    (ROTATE, None, {"1": "5"}),
    (ack(3), None, {"1": "6"}),
    (ROTATE, None, {"1": "6"}),
    (ROTATE, None, {}),
)
SECOND_ACK = acker(
    (init(5), None, {"1": "5"}),
    (ack(3), None, {"1": "6"}),
    (ack(3), None, {"1": "5"}),
    (ack(6), None, {"1": "3"}),
    upstream_quirk="an ack that is delivered twice un-acks",
)
COLLIDING_IDS = acker(
    (init(1 ^ 2 ^ 3), "ack", {}),
    (ack(1), None, {"1": "?1"}),
    (ack(2), None, {"1": "?3"}),
    (ack(3), None, {"1": "?0"}),
    upstream_quirk="ids that are not random: their XOR is 0 from the start",
)
JSTORM_FORGETS_THE_FAIL = acker(
    (FAIL, None, {}), (init(5), None, {"1": "5"}), (ack(5), "ack", {}), dialect="jstorm"
)

# --- checkpoint ----------------------------------------------------------------------------------


def spout_step(op: str, txid: int | None, emit: Any, saved: tuple[int, str], flags: str) -> Vector:
    """Return a step; flags: r recovering, s a recovery step and c a checkpoint step under way."""
    emitted = [{"txid": emit[0], "action": emit[1], "msg_id": emit[0]}] if emit else []
    expected = {
        "emit": emitted,
        "saved": {"txid": saved[0], "state": saved[1]},
        "recovering": "r" in flags,
        "recovery_step_in_progress": "s" in flags,
        "checkpoint_step_in_progress": "c" in flags,
    }
    return {"op": op, **({} if txid is None else {"txid": txid}), "expect": expected}


def idle(step: Vector) -> Vector:
    return {**step, "expect": {**step["expect"], "idle": True}}


FOUND_PREPARING = {
    "initial": {"txid": 100, "state": "PREPARING"},
    "interval_elapsed_always": True,
    "steps": [
        spout_step("nextTuple", None, (100, "ROLLBACK"), (100, "PREPARING"), "rs"),
        spout_step("fail", 100, None, (100, "PREPARING"), "r"),
        spout_step("nextTuple", None, (100, "ROLLBACK"), (100, "PREPARING"), "rs"),
        spout_step("ack", 100, None, (99, "COMMITTED"), "r"),
        spout_step("nextTuple", None, (99, "INITSTATE"), (99, "COMMITTED"), "rs"),
        spout_step("ack", 99, None, (99, "COMMITTED"), "s"),
        spout_step("nextTuple", None, (100, "PREPARE"), (100, "PREPARING"), "sc"),
    ],
}
INTERVAL = {
    "initial": {"txid": -1, "state": "COMMITTED"},
    "interval_elapsed_always": False,
    "steps": [
        spout_step("nextTuple", None, (-1, "INITSTATE"), (-1, "COMMITTED"), "rs"),
        spout_step("ack", -1, None, (-1, "COMMITTED"), "s"),
        spout_step("nextTuple", None, (0, "PREPARE"), (0, "PREPARING"), "sc"),
        spout_step("ack", 0, None, (0, "COMMITTING"), "s"),
        spout_step("nextTuple", None, (0, "COMMIT"), (0, "COMMITTING"), "sc"),
        spout_step("ack", 0, None, (0, "COMMITTED"), "s"),
        idle(spout_step("nextTuple", None, None, (0, "COMMITTED"), "s")),
    ],
}
SECOND_PREPARE_ACK = {
    "initial": {"txid": 5, "state": "COMMITTED"},
    "interval_elapsed_always": True,
    "steps": [
        spout_step("nextTuple", None, (5, "INITSTATE"), (5, "COMMITTED"), "rs"),
        spout_step("ack", 5, None, (5, "COMMITTED"), "s"),
        spout_step("nextTuple", None, (6, "PREPARE"), (6, "PREPARING"), "sc"),
        spout_step("ack", 6, None, (6, "COMMITTING"), "s"),
        spout_step("ack", 6, None, (6, "COMMITTED"), "s"),
        spout_step("ack", 6, None, (7, "PREPARING"), "s"),
    ],
}


def bolt_step(action: str, txid: int, event: str) -> Vector:
    expected = {"events": [event], "last_txid": 2, "waiting": 0}
    return {"op": "checkpoint", "action": action, "txid": txid, "expect": expected}


INIT_IS_PASSED_OVER = {
    "steps": [
        bolt_step("PREPARE", 2, "fail(cp)"),
        bolt_step("INITSTATE", 1, "ack(cp)"),
        bolt_step("PREPARE", 2, "fail(cp)"),
    ]
}
LEAK_AFTER_ROLLBACK = {
    "steps": [
        {"op": "put", "key": "a", "value": "1", "expect": {"view": {"a": "1"}}},
        {"op": "prepare", "txid": 1, "expect": {"view": {"a": "1"}}},
        {"op": "commit", "txid": 1, "expect": {"view": {"a": "1"}}},
        {"op": "rollback", "expect": {"view": {"a": "1"}}},
        {"op": "put", "key": "b", "value": "2", "expect": {"view": {"a": "1", "b": "2"}}},
        {"op": "rollback", "expect": {"view": {"a": "1", "b": "2"}}},
    ]
}

# --- states --------------------------------------------------------------------------------------


def batch(txid: int, **expected: Any) -> list[Vector]:
    """Return the steps of one batch that adds 5 to a."""
    add = {"op": "update_add", "key": "a", "amount": 5, "expect": expected}
    return [{"op": "begin_commit", "txid": txid}, add, {"op": "commit", "txid": txid}]


OLDER_TXID = {
    "kind": "transactional",
    "steps": [
        *batch(4, value=5, stored={"val": 5, "txid": 4}),
        *batch(3, value=10, stored={"val": 10, "txid": 3}),
    ],
}
OLDER_TXID_IS_AN_ERROR = {
    "kind": "opaque",
    "steps": [
        *batch(4, value=5, stored={"curr": 5, "prev": None, "txid": 4}),
        *batch(9, value=10, stored={"curr": 10, "prev": 5, "txid": 9}),
        *batch(7, error=True),
    ],
}
CUT_OFF = {
    "kind": "opaque",
    "steps": [
        *batch(1, value=5, stored={"curr": 5, "prev": None, "txid": 1}),
        *batch(2, value=10, stored={"curr": 10, "prev": 5, "txid": 2})[:2],
        {"op": "begin_commit", "txid": 2},
        {
            "op": "get",
            "key": "a",
            "expect": {"value": 5, "stored": {"curr": 10, "prev": 5, "txid": 2}},
        },
    ],
}
