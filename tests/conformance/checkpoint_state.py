"""CheckPointState: the table of the core's checkpoint.

txid is the commit number. Compared: the action, the next phase and commit number, and whether
there was anything to repair (`no_change`: the same object).
"""

from __future__ import annotations

import re

from reliability.core.checkpoint import CheckpointState, Phase
from tests.conformance.bench import Bench
from tests.conformance.checkpointing import word_of
from tests.conformance.comparison import Comparison
from tests.conformance.runner import Adapter
from tests.conformance.vectors import Vector

SYMBOLIC_TXIDS = (1, 7)


def _transition(vector: Vector, c: Comparison, bench: Bench) -> None:
    data, expected = vector.data, vector.data["expect"]
    state, recovering = CheckpointState(Phase(data["state"]), data["txid"]), data["recovering"]
    c.at(0, f"{data['state']}({data['txid']})")
    _compare(c, state, recovering, expected["action"])
    following = state.next_state(recovering)
    c.field("next_txid", expected["next_txid"], following.commit_number)
    c.field("next_state", expected["next_state"], following.phase.value)
    c.field("no_change", expected["no_change"], following is state)


def _symbolic(vector: Vector, c: Comparison, bench: Bench) -> None:
    data = vector.data
    place = re.match(r"\(txid([+-]\d+)?, (\w+)\)", data["next"])
    for txid in SYMBOLIC_TXIDS:
        state = CheckpointState(Phase(data["state"]), txid)
        c.at(0, f"{data['state']}({txid})")
        _compare(c, state, data["recovering"], data["action"])
        following = state.next_state(data["recovering"])
        if place is None:
            c.field("next", data["next"].startswith("unchanged"), following is state)
            continue
        wanted = [txid + int(place[1] or 0), place[2]]
        c.field("next", wanted, [following.commit_number, following.phase.value])


def _compare(c: Comparison, state: CheckpointState, recovering: bool, action: str) -> None:
    """In the originals the action of COMMITTED is that of the state that follows it."""
    c.field("action", action, word_of(state.next_action(recovering)))


ADAPTER = Adapter(
    component=r"\bCheckPointState\b", each={"vectors": _transition, "symbolic_table": _symbolic}
)
