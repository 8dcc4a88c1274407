"""Random histories of the real engine on real ledgers: G1 to G4 and G8 hold in every one.

Two processes draw 2,000 histories, always the same ones. For a longer run with others::

    RELIABILITY_HISTORIES=50000 python -m pytest tests/simulation

A history that fails is shrunk and printed; written down in test_known_histories.py it stays.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.fix_postgres import run_as_admin
from tests.simulation.histories import happen_many, prepare

PROCESSES = 2
A_FEW = 2000


@pytest.fixture
def two_ledgers(dsn, template, monkeypatch):
    """Two databases of one server, each with an empty ledger."""
    run_as_admin(f"CREATE DATABASE simulated_other TEMPLATE {template} OWNER reliability")
    monkeypatch.setenv("RELIABILITY_DSN_OTHER", "service=reliability dbname=simulated_other")
    prepare()
    yield
    run_as_admin("DROP DATABASE simulated_other WITH (FORCE)")


@pytest.mark.timeout(24 * 3600)
def test_every_history_keeps_the_guarantees(two_ledgers):
    wanted = os.environ.get("RELIABILITY_HISTORIES")
    histories = int(wanted or A_FEW)
    first_seed = random.randrange(10**9) if wanted else 0
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        seeds = range(first_seed, first_seed + PROCESSES)
        failures = [*pool.map(happen_many, [histories // PROCESSES] * PROCESSES, seeds)]
    for number, failure in zip(seeds, failures, strict=True):
        assert not failure, f"seed {number}\n{failure}"
