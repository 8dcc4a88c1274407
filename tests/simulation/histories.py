"""A history is a topology and at most fifteen operations on it; many are drawn, in one process."""

from __future__ import annotations

import logging
import traceback
from contextlib import closing
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import reliability.spark.stage.stage_task
import reliability.transaction.topology.databases
from reliability.deployment.address import address_of
from reliability.ledger.connection import LedgerConnection
from tests.simulation.config import Config, configs, configs_with_corrections
from tests.simulation.connections import SimulatedConnection
from tests.simulation.observed import Observer
from tests.simulation.operations import Operation, corrections, operations, perform
from tests.simulation.world import World

MAX_STEPS = 15
SESSIONS_OF_THEIR_OWN = (
    reliability.spark.stage.stage_task,
    reliability.transaction.topology.databases,
)


@dataclass(frozen=True)
class History:
    """:param drains: at the end people clear what is red, and everything has to commit"""

    config: Config
    steps: tuple[Operation, ...]
    drains: bool = False


def histories_of(
    config: st.SearchStrategy[Config], steps: st.SearchStrategy[Operation]
) -> st.SearchStrategy[History]:
    """Draw histories that are made of these operations."""
    return st.builds(
        History,
        config=config,
        steps=st.lists(steps, min_size=3, max_size=MAX_STEPS).map(tuple),
        drains=st.sampled_from([False] * 9 + [True]),
    )


KINDS = {
    "operations": histories_of(configs, operations),
    "corrections": histories_of(configs_with_corrections, corrections),
}


def prepare(dsn: str) -> None:
    """Make a ledger ready to be looked at."""
    connection = LedgerConnection(dsn)
    Observer.prepare(connection)
    connection.close()


def happen(history: History) -> None:
    """Let a history happen, and raise AssertionError for what must not be."""
    with closing(World(address_of().dsn, history.config)) as world:
        for step in history.steps:
            perform(world, step)
        world.check_standing()
        if history.drains:
            world.drain()
        world.check_swept()


def happen_many(kind: str, number: int, seeded_with: int, shrinks: bool = True) -> str:
    """Let so many histories of a kind happen; return why one fails, the simplest, or nothing."""
    drawn: list[History] = []

    @seed(seeded_with)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=(Phase.generate, *([Phase.shrink] if shrinks else [])),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(KINDS[kind])
    def each(history: History) -> None:
        drawn.append(history)
        happen(history)

    for module in SESSIONS_OF_THEIR_OWN:  # of this process, which ends with these histories
        vars(module)["LedgerConnection"] = SimulatedConnection
    logging.disable(logging.WARNING)  # what is refused on purpose is told of at length
    try:
        each()
    except Exception:
        return f"among {len(drawn)} histories\n{traceback.format_exc()}"
    finally:
        logging.disable(logging.NOTSET)
    return ""
