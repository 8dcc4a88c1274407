"""Trident's states: TransactionalState and OpaqueState, as a commit applies them.

A batch is an attempt whose rows are staged one by one; what an update shows is the row after the
whole commit of what is staged so far, which is then rolled back. `commit` carries it out. A txid
that has committed already is a replay. A second `begin_commit` leaves a dead attempt behind. `get`
is the value on which the next update builds: the commit of a row that changes nothing.
`put` is the update that takes the key to the value. NonTransactionalMap, which the product does
not have, is the same statement without the check of the txid.

Compared: the value, and the stored row: value, previous value, txid; and errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reliability.core.errors import LedgerCorruption, ReliabilityError, ReplayNotPossible
from reliability.ledger.connection import Row
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.one_state import KINDS, OLDEST, OneState
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    kind, steps = vector.data["kind"], vector.steps
    if kind not in KINDS:
        raise Failed(f"unknown kind {kind}")
    played = OneState(bench, kind, overwrites=_overwrites(steps))
    for number, step in enumerate(steps):
        _step(number, step, played, c)


def _overwrites(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the type of the values if they are put, None if they are added."""
    values = [step["value"] for step in steps if step["op"] == "put"]
    if not values or any(step["op"] == "update_add" for step in steps):
        return None
    return "bigint" if all(isinstance(value, int) for value in values) else "text"


def _step(number: int, step: Mapping[str, Any], played: OneState, c: Comparison) -> None:
    op, expected = step["op"], step.get("expect", {})
    key, batch = step.get("key", ""), played.batch
    txid = batch.txid if batch else None
    last = max(played.committed, default=0)
    c.at(
        number,
        op,
        kind=played.kind,
        lost=key in played.lost,
        crashed=key in played.crashed,
        refused=key in played.refused,
        older=txid is not None and txid < last,
        replay=txid in played.committed,
        unseen=txid in played.committed and key not in played.committed[txid],
        untracked=batch is not None and txid is None,
    )
    match op:
        case "begin_commit":
            played.begin(step["txid"])
        case "commit":
            _commit(played, c)
        case "seed":
            played.seed(key, expected["stored"])
            c.field("stored", expected["stored"], played.stored(played.row(key)), key)
        case "get":
            _compare(c, played, key, expected, _get)
        case "update_add":
            _compare(c, played, key, expected, lambda p, k: _update(p, k, step["amount"]))
        case "put":
            _compare(c, played, key, expected, lambda p, k: _put(p, k, step["value"]))
        case _:
            raise UnknownOp(f"op {number}: {op} is unknown")


Shown = tuple[Any, Any]


def _compare(
    c: Comparison,
    played: OneState,
    key: str,
    expected: Mapping[str, Any],
    act: Callable[[OneState, str], Shown],
) -> None:
    before = played.row(key)
    try:
        value, stored = act(played, key)
        failed = False
    except ReliabilityError:
        value = stored = None
        failed = True
        c.ours(played.row(key) == before, "what is refused changes nothing")
    c.field("error", expected.get("error", False), failed, key)
    if expected.get("error") or failed:
        return
    if "value" in expected:
        c.field("value", expected["value"], value, key)
    c.field("stored", expected.get("stored", stored), stored, key)


def _get(played: OneState, key: str) -> Shown:
    if played.batch is None or played.batch.txid is None or played.kind == "nontransactional":
        row = played.after(key) if played.batch and played.batch.keys else played.row(key)
        return (row and row["value"], played.stored(row))
    if played.kind == "transactional":  # Trident asks no txid here
        row = _would_be(played, key) if key in played.batch.keys else played.row(key)
        return (row and row["value"], played.stored(row))
    stored = played.stored(played.after(key) if key in played.batch.keys else played.row(key))
    return (played.base(key), stored)


def _update(played: OneState, key: str, value: Any) -> Shown:
    if played.batch is None:
        raise Failed("an update outside of a batch")
    if played.batch.txid is None:
        _refuse_null(played)
    played.update(key, value)
    row = _would_be(played, key)
    return (row and row["value"], played.stored(row))


def _would_be(played: OneState, key: str) -> Row | None:
    """Return the row as the commit would leave it."""
    try:
        return played.after(key)
    except (ReplayNotPossible, LedgerCorruption):
        if played.kind != "transactional":
            raise
        return played.row(key)  # refused as a whole: what committed stays


def _refuse_null(played: OneState) -> None:
    """Postgres refuses a batch without a txid."""
    with played.connection.transaction() as tx:
        played.stage(tx, "", 0, OLDEST)


def _put(played: OneState, key: str, value: Any) -> Shown:
    if played.overwrites:
        return _update(played, key, value if played.overwrites == "bigint" else str(value))
    try:
        base = _get(played, key)[0] or 0
    except ReliabilityError:
        base = 0
    return _update(played, key, value - base)


def _commit(played: OneState, c: Comparison) -> None:
    batch = played.batch
    gone = set()
    is_last = batch is not None and batch.txid == max(played.committed, default=0)
    if batch and batch.txid is not None and is_last and played.kind == "opaque":
        gone = played.committed.get(batch.txid, set()) - batch.keys
    before = {key: played.stored(played.row(key)) for key in gone}
    played.commit()
    for key, was in before.items():
        found = played.stored(played.row(key))
        c.ours((found and found["curr"]) == was["prev"], "a key that a replay lacks goes back")


# --- vectors of one op ---------------------------------------------------------------------------


def play_opaque_value(vector: Vector, c: Comparison, bench: Bench) -> None:
    data, expected = vector.data, vector.data["expect"]
    op, stored, txid = data["op"], data.get("stored"), data["batch_txid"]
    played = OneState(bench, "opaque", overwrites="text")
    if stored is not None:
        played.seed("k", stored)
    last = max(played.committed, default=0)
    untracked, older = txid is None, txid is not None and txid < last
    c.at(0, op, kind="opaque", untracked=untracked, older=older, lost=False, crashed=False)
    played.begin(txid)
    if op not in ("OpaqueValue.get", "OpaqueValue.update"):
        raise UnknownOp(f"{op} is unknown")
    if op == "OpaqueValue.get":
        _compare(c, played, "k", expected, _get)
    else:
        wanted = expected if expected.get("error") else {"stored": dict(expected)}
        _compare(c, played, "k", wanted, lambda p, k: _update(p, k, data["new"]))
    played.commit()


ROTATING = (
    "Storm T12, RotatingTransactionalState, has no use: the metadata of a txid is a row of the "
    "ledger, BatchMeta, and stays"
)
ROTATING_OPS = ("get", "getorcreate", "prev", "last", "cleanup", "override", "put", "remove")


def play_rotating(vector: Vector, c: Comparison, bench: Bench) -> None:
    for number, step in enumerate(vector.steps):
        if step["op"] not in ROTATING_OPS:
            raise UnknownOp(f"op {number}: {step['op']} is unknown")
    c.no_use(ROTATING)


REMOVE = "Storm O7: a state has no remove by key: a key goes when its last row goes"


def play_remove(vector: Vector, c: Comparison, bench: Bench) -> None:
    """Steps in words: `begin 2; remove a; get a=null; commit 2`."""
    played = OneState(bench, "opaque", overwrites="bigint")
    texts = vector.data["memory_map_state_remove"]["steps"]
    words = [text.strip() for step in texts for text in step.split(";")]
    for number, word in enumerate(words):
        match = re.fullmatch(r"(begin|put|remove|get|commit) (.+?)(?: \(\w+\))?", word)
        if match is None:
            raise UnknownOp(f"op {number}: {word!r} is unknown")
        op, what = match.groups()
        c.at(
            number,
            op,
            kind="opaque",
            lost=False,
            crashed=False,
            older=False,
            untracked=False,
            refused=False,
        )
        for part in what.split(","):
            _word(op, part.strip(), played, c)


def _word(op: str, what: str, played: OneState, c: Comparison) -> None:
    key, _, value = what.partition("=")
    match op:
        case "begin":
            played.begin(int(what))
        case "commit":
            played.commit()
        case "put":
            played.update(key, int(value))
        case "remove":
            c.no_use(REMOVE)
            c.carry(REMOVE, key)
        case "get":
            wanted = None if value == "null" else int(value)
            c.field("get", wanted, _get(played, key)[0], key)


RULES = (
    Rule(
        "update_add|put|OpaqueValue.update",
        "Storm O1's null txid is for queries of DRPC, which have no use: every batch has a txid",
        lambda facts: facts["untracked"],
    ),
    Rule(
        "get|update_add|put",
        "Storm O9 is a defect: a key that the replayed batch lacks keeps what the discarded one "
        "gave it; here it has its previous value again",
        lambda facts: facts["kind"] == "opaque" and facts["lost"],
    ),
    Rule(
        "update_add|put|get",
        "Storm O3 is a defect: an older txid is applied, and moves the row's txid back; here it is "
        "refused",
        lambda facts: facts["kind"] == "transactional" and facts["older"],
    ),
    Rule(
        "put",
        "Storm O3: multiPut writes whatever the txid is; here a txid is applied once",
        lambda facts: facts["kind"] == "transactional" and facts["replay"],
    ),
    Rule(
        "update_add",
        "a txid is applied to all of its keys at once, and never a second time to others",
        lambda facts: facts["kind"] == "transactional" and facts["unseen"],
    ),
    Rule(
        "get|update_add|put",
        "Storm O1 looks at the txid of each key; here a txid behind the last one is refused for "
        "all of its keys (H5)",
        lambda facts: facts["kind"] == "opaque" and facts["older"] and facts["found"],
        field="error",
    ),
    Rule(
        "get|update_add|put",
        "a commit is one Postgres transaction: one of which a key is refused leaves nothing behind",
        lambda facts: facts["refused"],
    ),
    Rule(
        "get|update_add|put",
        "a commit is one Postgres transaction: one that was cut off leaves nothing behind",
        lambda facts: facts["crashed"],
    ),
)

ADAPTER = Adapter(
    component=r"OpaqueMap|TransactionalMap|OpaqueValue|RotatingTransactionalState",
    each={
        "vectors": play,
        "opaque_value_vectors": play_opaque_value,
        "rotating_state_vectors": play_rotating,
    },
    whole={"memory_map_state_remove": play_remove},
    rules=RULES,
)
