"""Histories that once broke the engine, by the schedule that did it, or that are seldom drawn."""

from __future__ import annotations

from reliability.core.spout import SpoutKind
from reliability.core.state import StateKind
from tests.simulation.config import MANY, Config
from tests.simulation.contents import BEST, LINES, TOTALS, VIEW
from tests.simulation.histories import History, happen
from tests.simulation.operations import (
    Again,
    Claim,
    Close,
    Commit,
    Emit,
    End,
    HoursPass,
    Late,
    Open,
    RollBack,
    Stage,
    Stick,
    Sweep,
    Work,
    Write,
)
from tests.simulation.world import Silent

KNOWN = {
    "a replay of the txid before an opaque batch": History(
        Config(spout=SpoutKind.OPAQUE, pending=1, items=(0, 0, 0)),
        (Work(), Work(), Work(acts=1), Again(txid=-1), Work()),
    ),
    "a replay that a later first commit overtakes": History(
        Config(best=StateKind.OPAQUE, pending=1, items=(2, 2, 2)),
        (Work(), Work(), Work(task=0), Again(txid=-1), Work()),
    ),
    "a zombie that copies into a table after its seal": History(
        Config(states=(LINES, BEST), min_rows=(1,), items=(3,)),
        (Work(task=0), Stage(write=1), Stage(write=1), Work()),
    ),
    "a zombie that copies a key into a table after its seal": History(
        Config(states=(TOTALS, BEST), best=StateKind.OPAQUE, min_rows=(1,), pending=2),
        (Work(task=0), Work(txid=1), Write(txid=2)),
    ),
    "a commit while a zombie copies into the table that it would drop": History(
        Config(states=(LINES, BEST), min_rows=(1,), items=(3,)),
        (Work(task=0), Write(within=Commit()), Work()),
    ),
    "an attempt that is ended while it is sealed": History(
        Config(sealed_late=True), (Work(within=End(fence=True)), Work())
    ),
    "an ack while an attempt is sealed": History(
        Config(sealed_late=True), (Work(within=Stage(partition=2)), Work())
    ),
    "a sweep soon after the replay of a view": History(
        Config(states=(VIEW, BEST), min_rows=(1,)), (Work(), Again(txid=-1), Sweep(clean=True))
    ),
    "a sweep that ends an attempt while it opens a table": History(
        Config(states=(VIEW, BEST), min_rows=(1,)),
        (Claim(), HoursPass(Silent.SPARK), Open(within=Sweep(clean=True)), Work()),
    ),
    "a replay that only the last sweep commits": History(
        Config(min_rows=(1, MANY), pending=1),
        (Work(), Work(), Work(task=0), Again(txid=-1, task=0)),
    ),
    "a dry run of a rollback that finds a decided commit": History(
        Config(databases=2, states=(TOTALS, VIEW)), (Stick(sink=1), RollBack(dry_run=True))
    ),
    "an emission during which its run closes": History(
        Config(pending=1, items=(2, 2), states=(TOTALS, BEST), min_rows=(1, MANY)),
        (Commit(txid=0), Emit(run="A", within=Close(txid=0, run="A")), Late()),
    ),
    "a commit of what never shares one, within the checkpoint interval": History(
        Config(best=StateKind.OPAQUE, grouped=True, databases=2), (Work(), Work(task=0), Commit())
    ),
}


def test_known_histories_hold(ledger, other_ledger):
    for name, history in KNOWN.items():
        print(name)  # which is shown if it fails
        happen(history)
