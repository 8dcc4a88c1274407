"""Pytest plugin of a mutant's run: use the Postgres that is up already, with own databases."""

from __future__ import annotations

import itertools
import json
import os

import pytest

OF_SERVER = "MUTANTS_SERVER"  # the environment's own variables, as JSON


class Attached:
    """Stands in for the environment that the tests would bring up and destroy."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def up_postgres(self) -> None:
        """It is up."""

    def own_env(self) -> dict[str, str]:
        """Return what leads to it."""
        found: dict[str, str] = json.loads(os.environ[OF_SERVER])
        return found

    def destroy(self) -> None:
        """Others use it."""


def pytest_configure(config: pytest.Config) -> None:
    """Databases of several runs live side by side."""
    from tests.support import fix_postgres

    own = os.getpid()
    vars(fix_postgres).update(
        Environment=Attached, TEMPLATE=f"template_{own}", _numbers=itertools.count(own * 1000)
    )
