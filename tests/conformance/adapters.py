"""All adapters; a file goes to the first that is for its component."""

from __future__ import annotations

from tests.conformance import (
    acker,
    checkpoint_spout,
    checkpoint_state,
    coordinator,
    global_count,
    stateful_bolt,
    transactional_topology,
    trident_state,
)
from tests.conformance.runner import Adapter

ADAPTERS: tuple[Adapter, ...] = (
    acker.ADAPTER,
    checkpoint_state.ADAPTER,
    checkpoint_spout.ADAPTER,
    coordinator.ADAPTER,
    stateful_bolt.ADAPTER,
    trident_state.ADAPTER,
    global_count.ADAPTER,
    transactional_topology.ADAPTER,
)
