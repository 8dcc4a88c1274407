"""Acker: the attempts, sinks and acks of the ledger.

A root is the one attempt of a txid of its own, in one topology. `init` grants it, its ack_val
being the init value; `ack` is the transaction of a Spark task, each a partition of its own;
`fail` is end_attempt, `reset_timeout` is renew_lease; `rotate` lets a third of the lease pass
and sweeps. What is complete after an op is sealed: an attempt that can be sealed is an ack.

An attempt is granted before anybody can name it. What a vector says of a root before its init is
refused, and delivered once it is granted.

Compared, for every root: what is emitted (not to which spout task), whether it is live, its
ack_val and that it has not failed; and that there are as many pending as there are entries.
Entries without init are Storm's memory of messages; buckets are how it counts time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.core.errors import AttemptIncomplete, RowsUnaccounted
from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Rule, UnknownOp
from tests.conformance.roots import Root, Roots
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector

DIALECTS = ("storm", "jstorm")
OPS = ("init", "ack", "fail", "reset_timeout", "rotate")


def play(vector: Vector, c: Comparison, bench: Bench) -> None:
    ops, expected = vector.data["ops"], _expected(vector, c)
    if len(ops) != len(expected):
        raise Failed(f"{len(ops)} ops, and {len(expected)} observations")
    played = Roots(bench, vector)
    for number, (op, wanted) in enumerate(zip(ops, expected, strict=True)):
        emitted = _do(number, op, played, c)
        _compare(c, played, wanted, emitted)
        if op["op"] == "rotate":  # what was said before an init is forgotten at some time
            held, entries = played.held, wanted["entries"]
            played.held = {root: held[root] for root in held if root in entries}
    _end(c, played)


def _expected(vector: Vector, c: Comparison) -> list[Mapping[str, Any]]:
    by_dialect = vector.data["expect"]
    if unknown := set(by_dialect) - set(DIALECTS):
        raise Failed(f"unknown dialects {sorted(unknown)}")
    dialect = next(dialect for dialect in DIALECTS if dialect in by_dialect)
    if dialect != "storm":
        c.dialect = f"it is told in the dialect {dialect}; storm's is what counts"
    return list(by_dialect[dialect])


def _do(number: int, op: Mapping[str, Any], played: Roots, c: Comparison) -> dict[str, str]:
    """Play one op; return what it emits: root -> ack, fail or reset_timeout."""
    name = op["op"]
    if name not in OPS:
        raise UnknownOp(f"op {number}: {name} is unknown")
    root = str(op.get("root"))
    known = played.roots.get(root)
    held_fail = any(held["op"] == "fail" for held in played.held.get(root, ()))
    again = known is not None and known.is_live
    had_late = known is not None and known.had_late_messages
    c.at(number, name, again=again, held_fail=held_fail, had_late=had_late)
    renewed = {}
    if name == "rotate":
        played.rotate()
    elif name == "init" and again:
        played.init_again(c, root)
    elif name == "init":
        played.init(root, int(op["val"]))
    elif known is None:
        played.refuse(c, op)
        played.held.setdefault(root, []).append(op)
    else:
        before = played.look()
        changed = played.deliver(root, op)
        if name == "reset_timeout" and changed:
            renewed[root] = "reset_timeout"
        if not known.is_live:
            c.ours(not changed and played.look() == before, "a late message changes nothing")
            known.had_late_messages = True
    return renewed | played.settle()


def _compare(
    c: Comparison, played: Roots, wanted: Mapping[str, Any], emitted: Mapping[str, str]
) -> None:
    entries = wanted["entries"]
    known = {root: e for root, e in entries.items() if e["spout_task"] is not None}
    found = played.look()
    c.field("emits", len(wanted["emit"]), len({str(e["root"]) for e in wanted["emit"]}))
    wanted_emit = {str(e["root"]): e["type"] for e in wanted["emit"]}
    for name in sorted({*known, *wanted_emit, *played.roots}):
        root = played.roots.get(name)
        c.field("emit", wanted_emit.get(name), emitted.get(name), name)
        live = root is not None and root.is_live
        by_ack, older = (root.lease_by_ack, root.was_spoken_of) if root else (False, False)
        c.field("live", name in known, live, name, lease_by_ack=by_ack, is_older=older)
        if root is None or not live:
            continue
        row = found[root.grant.attempt.txid]
        if name in known:
            c.field("ack_val", int(known[name]["ack_val"]), row["ack_val"], name)
            c.field("failed", known[name]["failed"], row["status"] == "FAILED", name)
        c.ours(row["ack_val"] == _xor(root), "ack_val is what was emitted and not acked")
    c.field("pending", wanted["pending"], len(entries))


def _xor(root: Root) -> int:
    val = root.init
    for ack in root.acks:
        val ^= ack
    return val


def _end(c: Comparison, played: Roots) -> None:
    """Whatever is not complete when its write ends is not sealed."""
    for root in played.roots.values():
        if root.is_live:
            try:
                played.seal(root)
            except (AttemptIncomplete, RowsUnaccounted):
                continue
            c.ours(False, f"{root.grant} was sealed, and lacks acks")


RULES = (
    Rule(
        "init",
        "Storm A13 is a defect: an init happens once, in the transaction that grants the attempt",
        lambda facts: facts["again"],
    ),
    Rule(
        "init",
        "Storm A8 lets ack_val 0 win over a fail; here an attempt that has failed is not sealed",
        lambda facts: facts["held_fail"] and (facts["expected"], facts["found"]) == ("ack", "fail"),
        field="emit",
    ),
    Rule(
        "init",
        "Storm A11: a late message is the seed of another entry; here it is about the attempt that "
        "has ended, and changes nothing",
        lambda facts: facts["had_late"],
    ),
    Rule(
        "rotate",
        "Storm A5, A15: an ack does not put off the timeout, whatever its documentation says; here "
        "it renews the lease",
        lambda facts: facts["lease_by_ack"] and facts["found"],
        field="live",
    ),
    Rule(
        "rotate",
        "Storm A4: an entry is as old as the first message about its root, which may come before "
        "its init; here the lease begins with the grant",
        lambda facts: facts["is_older"] and facts["found"],
        field="live",
    ),
)

ADAPTER = Adapter(component=r"\bAcker\b", each={"vectors": play}, rules=RULES)
