"""Random histories of the real engine on real ledgers: G1 to G4 and G8 hold in every one.

These are 30 histories, always the same ones, and 12 with corrections. For a longer run with others,
by two processes::

    RELIABILITY_HISTORIES=50000 python -m pytest tests/simulation

A history that fails is shrunk (RELIABILITY_SHRINK=no: is not) and printed; written down in
test_known_histories.py it stays.
"""

from __future__ import annotations

import os
import random
from functools import partial
from multiprocessing import get_context

import pytest

from dev.demo.guard import die_with_parent
from tests.simulation.histories import happen_many

PROCESSES = 2
A_FEW = {"operations": 30, "corrections": 12}

WANTED = int(os.environ.get("RELIABILITY_HISTORIES", "0"))


@pytest.mark.timeout(2600 + WANTED)
@pytest.mark.parametrize("kind", A_FEW)
def test_every_history_keeps_the_guarantees(ledger, other_ledger, kind):
    number = WANTED or A_FEW[kind]
    first_seed = random.randrange(10**9) if WANTED else 0
    shrinks = os.environ.get("RELIABILITY_SHRINK", "yes") == "yes"
    each = partial(happen_many, kind, number // PROCESSES, shrinks=shrinks)
    seeds = range(first_seed, first_seed + PROCESSES)
    if WANTED:
        # its end is theirs, whatever ends it: nobody waits for histories that nobody looks at
        with get_context("spawn").Pool(PROCESSES, die_with_parent) as pool:
            failures = pool.map(each, seeds, chunksize=1)
    else:
        failures = [each(seed) for seed in seeds]
    for number, failure in zip(seeds, failures, strict=True):
        assert not failure, f"seed {number}\n{failure}"
