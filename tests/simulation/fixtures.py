"""Fixtures for tests on simulated topologies: real ledgers, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from reliability.ledger.connection import LedgerConnection
from tests.simulation.config import Config
from tests.simulation.connections import SimulatedConnection
from tests.simulation.histories import SESSIONS_OF_THEIR_OWN, prepare
from tests.simulation.world import World


@pytest.fixture
def ledger(dsn: str, monkeypatch) -> str:
    """A database with an empty ledger that can be looked at, and whose sessions can fail."""
    for module in SESSIONS_OF_THEIR_OWN:
        monkeypatch.setattr(module, "LedgerConnection", SimulatedConnection)
    prepare(dsn)
    return dsn


@pytest.fixture
def other_ledger(add_database: Callable[[str], LedgerConnection]) -> str:
    """A second one, in the same server, under the name that simulated topologies have for it."""
    other = add_database("other").dsn
    prepare(other)
    return other


@pytest.fixture
def new_world(ledger, request) -> Iterator[Callable[..., World]]:
    """Make a world of a topology: `new_world(pending=3)`; run A has emitted its items."""
    with ExitStack() as stack:

        def make(**configuration: Any) -> World:
            config = Config(**configuration)
            if config.databases == 2:
                request.getfixturevalue("other_ledger")
            return stack.enter_context(closing(World(ledger, config)))

        yield make
