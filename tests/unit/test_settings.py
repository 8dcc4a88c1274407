"""Settings: where a database is, and never a password (rule K3, G10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability.core.errors import DsnUnreadable, InvalidDefinition, PasswordInDsn
from reliability.deployment.fingerprint import fingerprint
from reliability.deployment.settings import database_dsn, engine_of, ledger_dsn
from spark_apps import global_count


def test_a_database_is_named_by_the_environment_or_a_service(monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", "service=ledger")
    monkeypatch.setenv("RELIABILITY_DSN_SHOP", "service=reliability dbname=shop")
    assert database_dsn("") == ledger_dsn() == "service=ledger"
    assert database_dsn("shop") == "service=reliability dbname=shop"
    assert database_dsn("web_shop") == "service=web_shop"


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("host=h password=hunter2", PasswordInDsn),
        ("postgresql://u:hunter2@h/d", PasswordInDsn),
        ("host=h sslpassword=hunter2", PasswordInDsn),
        ("password=my hunter2", DsnUnreadable),
    ],
)
def test_a_password_is_refused_and_not_repeated(monkeypatch, dsn, error):
    monkeypatch.setenv("RELIABILITY_DSN_SHOP", dsn)
    with pytest.raises(error, match="RELIABILITY_DSN_SHOP") as raised:
        database_dsn("shop")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["Shop", "shop-1", "a b", "host=h", "a;b", "_shop"])
def test_what_is_no_name_never_reaches_libpq(name):
    with pytest.raises(InvalidDefinition, match="is not a valid name"):
        database_dsn(name)


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
