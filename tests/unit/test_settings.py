"""Settings: which engine runs a step, and who asks."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest

from reliability.core.errors import InvalidDefinition
from reliability.deployment.fingerprint import fingerprint
from reliability.deployment.settings import engine_of, person
from spark_apps import global_count


@pytest.mark.parametrize(
    ("chosen", "variable", "engine"),
    [
        (None, None, "submit"),
        (None, "", "submit"),
        (None, "warm", "warm"),
        ("submit", "warm", "submit"),
        ("warm", None, "warm"),
    ],
)
def test_a_topology_chooses_its_engine_otherwise_the_host_does(
    monkeypatch, chosen, variable, engine
):
    monkeypatch.delenv("RELIABILITY_ENGINE", raising=False)
    if variable is not None:
        monkeypatch.setenv("RELIABILITY_ENGINE", variable)
    topology = replace(global_count.topology, engine=chosen)
    assert engine_of(topology) == engine
    assert fingerprint(topology) == fingerprint(global_count.topology)


def test_an_engine_of_the_host_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("RELIABILITY_ENGINE", "connect")
    with pytest.raises(InvalidDefinition, match="RELIABILITY_ENGINE is 'connect'"):
        engine_of(global_count.topology)


def test_a_user_without_a_name_has_a_number(monkeypatch):
    """In a container: each verb that records who asks ended in a traceback."""
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=KeyError("uid not found")))
    assert person().startswith("uid ")
