"""Airflow for the end-to-end tests: its four components, once, on the test run's environment."""

from __future__ import annotations

from functools import partial

import pytest

from dev.backfill import is_known
from dev.processes import wait_until
from reliability.ledger.door import Door


@pytest.fixture(scope="session")
def airflow(environment):
    """The environment with Airflow up and the example DAGs read."""
    environment.up(lambda text: None)
    for dag_id in ("cdnow_revenue", "global_count", "word_lengths"):
        wait_until(partial(is_known, environment.api(), dag_id), dag_id, 120)
    return environment


@pytest.fixture(scope="session")
def ledger(airflow):
    """A session with the ledger that Airflow's tasks use."""
    door = Door("service=reliability", application_name="end to end")
    yield door
    door.close()
