"""What a simulated history is drawn with: the shape of its topology, and where it starts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st

from reliability import Append, Count, Max, State, Step, Sum, Topology
from reliability.core.attempt import TransactionAttempt
from reliability.core.graph import THE_STEP
from reliability.core.spout import SpoutKind
from reliability.core.state import OpaqueState, StateKind, TransactionalState
from tests.simulation.contents import BEST, LINES, TOTALS, VIEW
from tests.simulation.source import Source
from tests.support.without_spark import never

KINDS = {
    StateKind.CONTRIBUTION: State,
    StateKind.OPAQUE: OpaqueState,
    StateKind.TRANSACTIONAL: TransactionalState,
}
A_LONG_TIME = 3600.0
OTHER = "other"  # the second target database
MANY = 10**6  # rows, more than any batch has


@dataclass(frozen=True)
class Config:
    """One topology.

    :param states: the names of its two states, at most one of which is a view
    :param best: the kind of the state BEST; TOTALS is a ContributionState
    :param min_rows: with so many rows or more an attempt has tables of its own; the limits of the
        attempts take turns
    :param graph: one step, two beside each other, or the second reads what the first staged
    :param items: rows of each item that is there at the start, for the first month
    :param shared: run B reads run A's month, not the next one
    :param poison: (txid, attempt_id) whose commit Postgres refuses
    :param throttled: an hour has to pass between two begins
    :param grouped: an hour has to pass between two physical commits
    :param databases: in how many target databases the states lie
    :param sealed_late: another process comes in when a sealed attempt has been checked, not before
    """

    spout: SpoutKind = SpoutKind.TRANSACTIONAL
    states: tuple[str, str] = (TOTALS, BEST)
    best: StateKind = StateKind.CONTRIBUTION
    min_rows: tuple[int, ...] = (MANY,)
    graph: str = "one"
    pending: int = 2
    items: tuple[int, ...] = (2, 2)
    shared: bool = False
    poison: frozenset[tuple[int, int]] = frozenset()
    throttled: bool = False
    grouped: bool = False
    databases: int = 1
    sealed_late: bool = False

    def topology(self, name: str, source: Source) -> Topology:
        """Return the topology; no step's function is ever called."""
        first, second = self.states
        return Topology(
            name,
            spout=source,
            states=[
                self._state(first, name),
                self._state(second, name, OTHER if self.databases == 2 else ""),
            ],
            max_spout_pending=self.pending,
            emit_interval_seconds=A_LONG_TIME if self.throttled else 0,
            checkpoint_interval_seconds=A_LONG_TIME if self.grouped else 0,
            module=__name__,
            **self._steps(),
        )

    def _state(self, state: str, topology: str, database: str = "") -> State:
        kind = self.best if state == BEST else StateKind.CONTRIBUTION
        return KINDS[kind](
            state, table=f"{topology}_{state}", database=database, **_DEFINITIONS[state]
        )

    def _steps(self) -> dict[str, Any]:
        if self.graph == "one":
            return {"process": never}
        first, second = self.states
        reads = [first] if self.graph == "chain" else []
        return {
            "steps": [
                Step("left", never, feeds=[first]),
                Step("right", never, feeds=[second], reads=reads),
            ]
        }

    def min_rows_of(self, attempt: TransactionAttempt) -> int:
        """Return with how many rows an attempt has tables of its own."""
        return self.min_rows[(attempt.txid + attempt.attempt_id) % len(self.min_rows)]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks of a transaction: its steps', then the commit's."""
        return (THE_STEP, "commit") if self.graph == "one" else ("left", "right", "commit")

    @property
    def guarded(self) -> str:
        """Return the state whose table has a constraint that poison violates; no view has one."""
        tables = [state for state in self.states if state != VIEW]
        return tables[0] if self.databases == 1 else tables[-1]


_DEFINITIONS: dict[str, dict[str, Any]] = {
    TOTALS: {
        "key": {"key": "bigint"},
        "values": {"total": Sum("value", "bigint"), "times": Count()},
    },
    BEST: {"values": {"top": Max("value"), "times": Count()}},
    LINES: {
        "values": {
            "key": Append("key", "bigint"),
            "part": Append("value", "bigint"),
            "text": Append("text", "text"),
        }
    },
    VIEW: {
        "key": {"key": "bigint"},
        "values": {"part": Append("value", "bigint"), "text": Append("text", "text")},
        "as_view": True,
    },
}


rarely = st.sampled_from([False] * 6 + [True])

_configs = partial(
    st.builds,
    Config,
    spout=st.sampled_from(SpoutKind),
    states=st.sampled_from(
        [
            (TOTALS, BEST),
            (TOTALS, BEST),
            (LINES, BEST),
            (TOTALS, VIEW),
            (VIEW, BEST),
            (LINES, VIEW),
            (VIEW, LINES),
        ]
    ),
    best=st.sampled_from(StateKind),
    min_rows=st.sampled_from([(1, MANY), (MANY, 1), (1,), (2, 1)]),
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
    sealed_late=st.booleans(),
)
configs = _configs(databases=st.sampled_from([1] * 7 + [2]))
configs_with_corrections = _configs(databases=st.sampled_from([1, 1, 2]))
