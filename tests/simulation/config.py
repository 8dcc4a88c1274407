"""What a simulated history is drawn with: the shape of its topology, and where it starts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st

from reliability import Count, Max, State, Step, Sum, Topology
from reliability.core.graph import THE_STEP
from reliability.core.spout import SpoutKind
from reliability.core.state import OpaqueState, StateKind, TransactionalState
from tests.simulation.contents import BEST, TOTALS
from tests.simulation.source import Source

KINDS = {
    StateKind.CONTRIBUTION: State,
    StateKind.OPAQUE: OpaqueState,
    StateKind.TRANSACTIONAL: TransactionalState,
}
A_LONG_TIME = 3600.0
OTHER = "other"  # the second target database


@dataclass(frozen=True)
class Config:
    """One topology.

    :param best: the kind of the second state; the first is a ContributionState
    :param graph: one step, two beside each other, or the second reads what the first staged
    :param items: rows of each item that is there at the start, for the first month
    :param shared: run B reads run A's month, not the next one
    :param poison: (txid, attempt_id) whose commit Postgres refuses
    :param throttled: an hour has to pass between two begins
    :param grouped: an hour has to pass between two physical commits
    :param databases: in how many target databases the states lie
    """

    spout: SpoutKind = SpoutKind.TRANSACTIONAL
    best: StateKind = StateKind.CONTRIBUTION
    graph: str = "one"
    pending: int = 2
    items: tuple[int, ...] = (2, 2)
    shared: bool = False
    poison: frozenset[tuple[int, int]] = frozenset()
    throttled: bool = False
    grouped: bool = False
    databases: int = 1

    def topology(self, name: str, source: Source) -> Topology:
        """Return the topology; no step's function is ever called."""
        return Topology(
            name,
            spout=source,
            states=[
                State(
                    TOTALS,
                    key={"key": "bigint"},
                    values={"total": Sum("value", "bigint"), "times": Count()},
                    table=f"{name}_{TOTALS}",
                ),
                KINDS[self.best](
                    BEST,
                    values={"top": Max("value"), "times": Count()},
                    table=f"{name}_{BEST}",
                    database=OTHER if self.databases == 2 else "",
                ),
            ],
            max_spout_pending=self.pending,
            emit_interval_seconds=A_LONG_TIME if self.throttled else 0,
            checkpoint_interval_seconds=A_LONG_TIME if self.grouped else 0,
            module=__name__,
            **self._steps(),
        )

    def _steps(self) -> dict[str, Any]:
        if self.graph == "one":
            return {"process": _never}
        reads = [TOTALS] if self.graph == "chain" else []
        return {
            "steps": [
                Step("left", _never, feeds=[TOTALS]),
                Step("right", _never, feeds=[BEST], reads=reads),
            ]
        }

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks of a transaction: its steps', then the commit's."""
        return (THE_STEP, "commit") if self.graph == "one" else ("left", "right", "commit")

    @property
    def guarded(self) -> str:
        """Return the state whose table has a constraint that poison violates."""
        return TOTALS if self.databases == 1 else BEST


def _never(*_: Any) -> dict[str, Any]:
    raise AssertionError("there is no Spark here")


rarely = st.sampled_from([False] * 6 + [True])

_configs = partial(
    st.builds,
    Config,
    spout=st.sampled_from(SpoutKind),
    best=st.sampled_from(StateKind),
    graph=st.sampled_from(["one", "one", "side", "chain"]),
    pending=st.integers(1, 3),
    items=st.lists(st.sampled_from([2, 1, 3, 0]), min_size=2, max_size=4).map(tuple),
    shared=st.booleans(),
    poison=st.one_of(
        st.just(frozenset()),
        st.frozensets(st.tuples(st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=2),
    ),
    throttled=rarely,
    grouped=rarely,
)
configs = _configs(databases=st.sampled_from([1] * 7 + [2]))
configs_with_corrections = _configs(databases=st.sampled_from([1, 1, 2]))
