"""Where a database is, and never a password where others see it (K3, G10)."""

from __future__ import annotations

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from reliability.core.errors import (
    DatabaseConnectionMissing,
    DsnUnreadable,
    InvalidDefinition,
    LedgerRefusedLogin,
    PasswordInDsn,
)
from reliability.deployment import address, airflow_connections
from reliability.deployment.address import (
    ADDRESSES,
    CREDENTIALS,
    ConnIds,
    DatabaseAddress,
    DriverAddresses,
    address_of,
    using,
)
from reliability.deployment.airflow_connections import keywords_of

SECRET = "hunter2"
find = airflow_connections.find_connection  # which no other test calls


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Let nothing say where a database is: no variable, no service file, no Airflow."""
    for name in [name for name in os.environ if name.startswith(("RELIABILITY", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setattr(airflow_connections, "_option", lambda name: "")
    monkeypatch.setattr(
        airflow_connections, "find_connection", lambda conn_id: connections()[conn_id]
    )


def connections(**kept: SimpleNamespace) -> dict[str, SimpleNamespace]:
    return _kept | kept


_kept: dict[str, SimpleNamespace] = {}


@pytest.fixture
def airflow_has(monkeypatch):
    """Let Airflow have connections: `airflow_has("shop", host="h", …)`."""

    def has(conn_id, conn_type="postgres", **told):
        fields = dict.fromkeys(("host", "port", "schema", "login", "password"))
        own = SimpleNamespace(conn_type=conn_type, **{**fields, "extra_dejson": {}, **told})
        monkeypatch.setitem(_kept, conn_id, own)

    return has


def write_services(tmp_path, *names):
    (tmp_path / "services").write_text("".join(f"[{name}]\nhost=h\n" for name in names))


def test_a_database_is_named_by_the_environment_or_a_service(monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", "service=ledger")
    monkeypatch.setenv("RELIABILITY_DSN_SHOP", "service=reliability dbname=shop")
    assert address_of().dsn == "service=ledger"
    assert address_of("shop").dsn == "service=reliability dbname=shop"
    assert address_of("web_shop").dsn == "service=web_shop"


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
        address_of("shop")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["shöp", "-shop", "a b", "host=h", "a;b", "_shop"])
def test_what_is_no_name_never_reaches_libpq(name):
    with pytest.raises(InvalidDefinition, match="is not a valid name"):
        address_of(name)


def test_who_says_where_the_ledger_is_comes_in_an_order(monkeypatch, tmp_path, airflow_has):
    """What libpq is told goes on as before; a DAG's own connection comes before a service."""
    airflow_has("reliability_default", host="default")
    airflow_has("of_config", host="configured")
    airflow_has("of_dag", host="dag")
    assert address_of().origin == "Airflow's connection reliability_default, the default"
    monkeypatch.setattr(airflow_connections, "_option", {"ledger_conn_id": "of_config"}.get)
    assert (
        address_of().origin
        == "Airflow's connection of_config, [reliability] ledger_conn_id names it"
    )
    write_services(tmp_path, "reliability")
    assert address_of().origin == "libpq's service reliability"
    with using(ConnIds.of("of_dag", {})):
        assert address_of().origin == "Airflow's connection of_dag, the DAG names it"
        assert address_of().keywords()["host"] == "dag"
        monkeypatch.setenv("RELIABILITY_DSN", "service=another")
        assert address_of().origin == "RELIABILITY_DSN"
    monkeypatch.delenv("RELIABILITY_DSN")
    (tmp_path / "services").unlink()
    monkeypatch.setattr(airflow_connections, "_option", lambda name: "")
    monkeypatch.delitem(_kept, "reliability_default")
    assert address_of() == DatabaseAddress(
        dsn="service=reliability", origin="libpq's service reliability"
    )


def test_a_host_without_an_airflow_gets_none(monkeypatch, tmp_path):
    """To import it writes a configuration and a database into the home folder."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "airflow", raising=False)
    monkeypatch.setattr(airflow_connections, "_option", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert address_of().dsn == "service=reliability"
    assert address_of("mart").dsn == "service=mart"
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert airflow_connections.is_set_up()


def test_another_database_has_a_connection_by_its_name(monkeypatch, tmp_path, airflow_has):
    airflow_has("mart_conn", host="mart")
    ids = json.dumps({"mart": "mart_conn"})
    monkeypatch.setattr(airflow_connections, "_option", {"database_conn_ids": ids}.get)
    assert address_of("mart").keywords()["host"] == "mart"
    assert address_of("mart").database == "mart"
    assert address_of("shop").dsn == "service=shop"
    write_services(tmp_path, "mart")
    assert address_of("mart").dsn == "service=mart"
    with using(ConnIds.of(None, {"mart": "mart_conn"})):
        assert address_of("mart").keywords()["host"] == "mart"
    (tmp_path / "services").unlink()
    for wrong in ("mart", '["mart"]', '{"mart": 1}'):
        monkeypatch.setattr(airflow_connections, "_option", {"database_conn_ids": wrong}.get)
        with pytest.raises(InvalidDefinition, match="database_conn_ids in Airflow's configuration"):
            address_of("mart")


def test_a_connection_is_asked_for_every_session(airflow_has):
    airflow_has("c", host="h", port=5433, schema="db", login="u", password=SECRET)
    with using(ConnIds.of("c", {})):
        found = address_of()
    told = {"dsn": "", "host": "h", "port": "5433", "dbname": "db", "user": "u"}
    assert found.keywords() == {**told, "password": SECRET}
    airflow_has("c", host="h", port=5433, schema="db", login="u", password="renewed")
    assert found.keywords() == {**told, "password": "renewed"}
    assert SECRET not in repr(found)


def test_libpqs_parameters_of_a_connection_reach_it_and_no_others(airflow_has):
    extras = {"sslmode": "verify-full", "host": "of the extras", "dbname": "shop", "cursor": "c"}
    airflow_has("c", "reliability", host="h", extra_dejson=extras)
    told = {"host": "h", "dbname": "shop", "sslmode": "verify-full"}
    assert keywords_of("c", connections()["c"]) == told
    airflow_has("c", "mysql", host="h")
    with pytest.raises(DsnUnreadable, match="connection c is of type mysql"):
        keywords_of("c", connections()["c"])


def test_what_a_secrets_backend_raises_is_not_repeated(monkeypatch):
    def fails(conn_id):
        raise RuntimeError(f"GET https://vault/?token={SECRET}")

    monkeypatch.setattr(airflow_connections, "find_connection", fails)
    with using(ConnIds.of("c", {})), pytest.raises(DatabaseConnectionMissing) as raised:
        address_of().keywords()
    assert "c, or cannot be asked: RuntimeError" in raised.value.what
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_triggerers_threads_ask_airflow_by_its_event_loop(monkeypatch):
    """Airflow 3.1 answers nothing that another thread asks in another way."""
    import asyncio

    async def aget_connection(conn_id):
        return conn_id, asyncio.get_running_loop()

    hook = SimpleNamespace(aget_connection=aget_connection, get_connection=None)
    monkeypatch.setitem(sys.modules, "airflow.sdk.bases.hook", SimpleNamespace(BaseHook=hook))

    async def trigger():
        loop = asyncio.get_running_loop()

        def poll():
            with airflow_connections.asking_by(loop):
                return find("c")

        assert await asyncio.to_thread(poll) == ("c", loop)

    asyncio.run(trigger())


def test_one_thread_of_a_task_asks_airflow_and_tells_the_others(airflow_has):
    """In Airflow 3.1 two at once get each other's answers."""
    airflow_has("c", password=SECRET)
    with using(ConnIds.of("c", {})), ThreadPoolExecutor(1) as other:
        ledger = address_of()
        with airflow_connections.asking_alone():
            ledger.keywords()
            airflow_has("c", password="renewed")
            assert other.submit(ledger.keywords).result()["password"] == SECRET
            assert ledger.keywords()["password"] == "renewed"
            assert other.submit(ledger.keywords).result()["password"] == "renewed"
        airflow_has("c", password="again")
        assert other.submit(ledger.keywords).result()["password"] == "again"


# --- a function of the user's --------------------------------------------------------------------


def token(database, known):
    return {"password": f"token of {known['user']} for {database or 'the ledger'}"}


def no_token(database, known):
    raise TimeoutError("no answer")


def test_a_function_is_asked_for_the_credentials_of_every_session(monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", "host=h user=etl")
    monkeypatch.setenv(CREDENTIALS, f"{__name__}:token")
    assert address_of().keywords() == {
        "dsn": "host=h user=etl",
        "password": "token of etl for the ledger",
    }
    for function, why in ((f"{__name__}:no_token", "no answer"), ("builtins:print", "TypeError")):
        monkeypatch.setenv(CREDENTIALS, function)  # print() returns nothing
        with pytest.raises(LedgerRefusedLogin, match=f"{function} fails: .*{why}"):
            address_of().keywords()


# --- what a driver is given ----------------------------------------------------------------------


@pytest.fixture
def driver(tmp_path, monkeypatch, airflow_has):
    """What a driver is given of a ledger that Airflow knows."""
    airflow_has("c", host="h", password=SECRET)
    with using(ConnIds.of("c", {})):
        given = DriverAddresses(str(tmp_path))
    monkeypatch.setattr(airflow_connections, "find_connection", None)  # a driver has no Airflow
    for name, value in given.variables.items():
        monkeypatch.setenv(name, value)
    return given


def test_a_driver_reads_a_file_of_its_users_alone(driver, monkeypatch):
    """G10: a file, not an argument, a conf or an environment; and it asks no Airflow for others."""
    path = Path(os.environ[ADDRESSES])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET not in str(driver.variables)
    assert address_of("mart").dsn == "service=mart"
    assert address_of().origin == "Airflow's connection c, the DAG names it"
    assert address_of().keywords() == {"dsn": "", "host": "h", "password": SECRET}
    found = address_of()
    path.chmod(0o640)
    with pytest.raises(LedgerRefusedLogin, match="does not have the credentials"):
        found.keywords()


def test_a_driver_is_told_new_credentials_once_airflow_can_be_asked(
    driver, monkeypatch, airflow_has, caplog
):
    monkeypatch.setattr(address, "REWRITE_SECONDS", 0.0)
    driver._due = 0.0
    driver.renew()
    assert "a driver gets its credentials later: " in caplog.text
    with monkeypatch.context() as full:  # what is there is still right
        full.setattr(driver, "_write", Mock(side_effect=OSError("No space left on device")))
        driver.renew()
    refused = address_of().keywords()
    assert refused["password"] == SECRET
    airflow_has("c", host="h", password="renewed")
    monkeypatch.setattr(
        airflow_connections, "find_connection", lambda conn_id: connections()[conn_id]
    )
    driver._due = 0.0
    driver.renew()
    assert address_of().renewed(refused) == {"dsn": "", "host": "h", "password": "renewed"}


def test_what_a_killed_task_has_left_is_removed_by_the_next(tmp_path):
    left, at_work = (tmp_path / f"reliability-{name}" / "addresses" for name in "ab")
    for file in (left, at_work):
        file.parent.mkdir()
        file.write_text(SECRET)
    os.utime(left, (0, 0))
    own = tmp_path / "reliability-c"
    own.mkdir()
    DriverAddresses(str(own))
    assert not left.exists()
    assert at_work.exists()


def test_a_refused_login_waits_for_others_no_longer_than_they_may_take(driver, monkeypatch):
    monkeypatch.setattr(address, "RENEWAL_SECONDS", 0.0)
    assert address_of().renewed(address_of().keywords()) is None
    assert DatabaseAddress(dsn="service=x").renewed({}) is None
