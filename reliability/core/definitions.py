"""Topology: the definition that a pipeline author writes, checked when it is created."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reliability.core.coordinator import Goal, Work
from reliability.core.errors import InvalidDefinition
from reliability.core.graph import THE_STEP, Step, in_order, needed_for
from reliability.core.names import LONGEST_STEP, check_id, variable_of
from reliability.core.set_aside import FAIL, check_malformed
from reliability.core.spout import Spout
from reliability.core.state import State, StateKind
from reliability.core.types import check_read_as

ENGINES = (SUBMIT, WARM) = ("submit", "warm")
MIN_CHECKPOINT_INTERVAL = 0.1  # seconds, as in Storm
_LEAST = {
    "max_spout_pending": 1,
    "max_replay_pending": 1,
    "lease_seconds": 1,
    "max_staging_sessions": 1,
    "blocked_timeout_seconds": 0,
    "emit_interval_seconds": 0,
    "max_quarantined": 0,
}
MOST_NUMBER = 10**9  # the integers and times of Postgres and Spark have ends


@dataclass(frozen=True)
class Topology:
    """One ordered pipeline: a spout, its processing steps, its states, its configuration.

    :param process: the only step's function: `(batch: DataFrame) -> {state name: DataFrame}`;
        every row of the batch reaches every state once, unless `drop()` or `quarantine()` says why
    :param steps: instead of `process`, several steps, each a spark-submit of its own
    :param max_spout_pending: how many txids may be between begin and commit (Trident's default: 1)
    :param max_replay_pending: how many replays may be processed at once, in addition to first
        attempts, so that a long backfill and today's run do not wait for each other; by default
        max_spout_pending
    :param emit_interval_seconds: least time between the starts of two attempts, Trident's
        emission throttle; 0 is none
    :param checkpoint_interval_seconds: least time between two physical commits, so that many
        small txids share one; 0 commits each as soon as possible, otherwise at least 0.1
    :param lease_seconds: a running attempt without progress for this long is considered dead;
        progress is a finished Spark task, so set it to more than the longest task takes
    :param blocked_timeout_seconds: a txid behind one that no run is working on waits, without a
        worker slot or a retry, until the older one has been blocked for this long; then its task
        fails. 7 days by default
    :param max_staging_sessions: how many Spark tasks of an attempt stage rows at once, each with a
        session in Postgres: the last stage of a job has no more partitions
    :param malformed: what happens to a row with a value that its state cannot store, such as a text
        with NUL: `fail` the attempt, or `quarantine` the row
    :param max_quarantined: how many rows of a batch may go into the quarantine; with more, the
        attempt fails
    :param max_quarantined_share: the same as a share of the batch, from 0 to 1
    :param engine: what runs a step: `submit`, a spark-submit of its own, or `warm`, a session
        of the host's warm engine; by default what RELIABILITY_ENGINE says, otherwise `submit`. The
        results are the same, and it may change at any time
    :param module: the module that defines this object; by default that of the first step's function
    """

    name: str
    spout: Spout
    states: Sequence[State]
    process: Callable[..., Mapping[str, Any]] | None = None
    steps: Sequence[Step] = ()
    max_spout_pending: int = 1
    max_replay_pending: int | None = None
    emit_interval_seconds: float = 0
    checkpoint_interval_seconds: float = 0
    lease_seconds: int = 900
    blocked_timeout_seconds: float = 7 * 24 * 3600
    max_staging_sessions: int = 32
    malformed: str = FAIL
    max_quarantined: int = 1000
    max_quarantined_share: float = 1.0
    engine: str | None = None
    module: str = ""

    def __post_init__(self) -> None:
        check_id("topology", self.name)
        self._check_states()
        self._check_numbers()
        if self.engine is not None and self.engine not in ENGINES:
            raise self._invalid(f"engine is {self.engine!r}, not {' or '.join(ENGINES)}")
        names = [state.name for state in self.states]
        # dataclasses.replace copies the step that was made here from `process`.
        given = [step for step in self.steps if step.process is not self.process]
        if (self.process is None) == (not given):
            raise InvalidDefinition(
                f"topology {self.name} needs either a process function or steps"
            )
        steps = [Step(THE_STEP, self.process, feeds=names)] if self.process else given
        for step in steps:
            check_id(f"step of topology {self.name}", step.name, LONGEST_STEP)
        object.__setattr__(self, "steps", in_order(self.name, steps, names))
        self._check_types_read()
        if not self.module:
            object.__setattr__(self, "module", getattr(self.steps[0].process, "__module__", ""))

    def step(self, name: str) -> Step:
        """Return the step of that name; raise InvalidDefinition if the topology has none."""
        for step in self.steps:
            if step.name == name:
                return step
        raise InvalidDefinition(f"topology {self.name} has no step {name}")

    def work(self, task: str, step: str | None = None) -> Work:
        """Return the work of a task: process one step, or commit the txid."""
        names = [s.name for s in self.steps]
        needed = needed_for(self.steps, *(names if step is None else [step]))
        goal = Goal.COMMITTED if step is None else Goal.PROCESSED
        others = frozenset(names) - needed.keys()
        return Work(goal=goal, task=task, steps=needed, other_steps=others)

    def step_of(self, state: str) -> str:
        return next(step.name for step in self.steps if state in step.feeds)

    def most_quarantined(self, emitted: int) -> int:
        """Return how many rows of a batch with `emitted` rows may go into the quarantine.

        A share of 1 sets no limit: `fan_out()` may make more bad rows than the batch has.
        """
        share = Decimal(str(self.max_quarantined_share))  # 0.29 of 100 rows are 29
        if share == 1:
            return self.max_quarantined
        return min(self.max_quarantined, math.floor(share * emitted))

    @property
    def groups_commits(self) -> bool:
        """Say whether several txids may share a physical commit (C5).

        An OpaqueState can undo only one txid. With several databases, a commit that one of them
        cannot carry out may have to be undone (C6).
        """
        return not self.databases or not any(s.kind is StateKind.OPAQUE for s in self.states)

    @property
    def replay_window(self) -> int:
        given = self.max_replay_pending
        return self.max_spout_pending if given is None else given

    @property
    def databases(self) -> tuple[str, ...]:
        """Return the databases of its states that are not the ledger's own, sorted."""
        return tuple(sorted({state.database for state in self.states} - {""}))

    @property
    def databases_of_steps(self) -> tuple[str, ...]:
        """Return those, and the one that the spout reads."""
        return tuple(sorted({*self.databases, self.spout.database} - {""}))

    def _check_types_read(self) -> None:
        columns = {
            state.name: {
                f"{state.name}.{name}": type_
                for name, type_ in (
                    *state.key.items(),
                    *((c.name, c.type) for c in state.columns()),
                )
            }
            for state in self.states
        }
        for step in self.steps:
            read = {name: t for state in step.reads for name, t in columns[state].items()}
            check_read_as(step.types, read, f"topology {self.name}: step {step.name}")

    def _check_states(self) -> None:
        if not self.states:
            raise InvalidDefinition(f"topology {self.name} has no states")
        names = [state.name for state in self.states]
        targets = [(state.database, *state.target) for state in self.states]
        if len(set(names)) < len(names) or len(set(targets)) < len(targets):
            raise InvalidDefinition(
                f"topology {self.name} has two states with the same name or table"
            )

        variables: dict[str, str] = {}
        for name in self.databases:
            if (other := variables.setdefault(variable_of(name), name)) != name:
                raise self._invalid(
                    f"databases {other} and {name} would both be found by {variable_of(name)}"
                )

    def _check_numbers(self) -> None:
        for name, least in _LEAST.items():
            number = getattr(self, name)
            if number is not None and not least <= number <= MOST_NUMBER:
                most = f"{MOST_NUMBER:,}"
                raise self._invalid(f"{name} must be at least {least}, and at most {most}")
        check_malformed(self.malformed, f"topology {self.name}")
        if not 0 <= self.max_quarantined_share <= 1:
            raise self._invalid("max_quarantined_share must be from 0 to 1")
        interval = self.checkpoint_interval_seconds
        if interval != 0 and not MIN_CHECKPOINT_INTERVAL <= interval <= MOST_NUMBER:
            possible = f"0, or from {MIN_CHECKPOINT_INTERVAL} to {MOST_NUMBER:,}"
            raise self._invalid(f"checkpoint_interval_seconds must be {possible}")

    def _invalid(self, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"topology {self.name}: {why}")
