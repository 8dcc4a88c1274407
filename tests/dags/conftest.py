"""What the tests of DAGs share."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from reliability.deployment import topologies
from reliability.transaction.topology import databases


@pytest.fixture(autouse=True)
def made_anywhere(monkeypatch):
    """Let functions of tests make topologies: no driver looks for these."""
    monkeypatch.setattr(topologies, "check_found", lambda topology: None)


@pytest.fixture
def no_ledger(monkeypatch):
    """Let tasks open no ledger."""
    monkeypatch.setattr(databases, "open_ledger", lambda _: nullcontext())
