"""Simulated topologies for the tests of this folder."""

from __future__ import annotations

from tests.simulation.fixtures import ledger, new_world, other_ledger

__all__ = ["ledger", "new_world", "other_ledger"]
