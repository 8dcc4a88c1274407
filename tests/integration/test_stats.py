"""What the tasks tell Airflow's own stats, as a StatsD daemon receives it."""

from __future__ import annotations

import re
import socket
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from reliability.core.errors import AttemptIncomplete
from tests.replay.shop import ROW_LENGTH
from tests.support.command_line import say
from tests.support.commit_task import CommitTask, shop_with_two_txids
from tests.support.fix_postgres import execute, rows

pytest.importorskip("statsd")


class Daemon:
    """The socket of a StatsD daemon, and what has come."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def told(self) -> dict[str, list[str]]:
        """Return the values by name; on loopback they are there when they are sent."""
        found: dict[str, list[str]] = defaultdict(list)
        while True:
            try:
                packet = self._socket.recv(65536).decode()
            except BlockingIOError:
                return dict(found)
            for line in packet.splitlines():
                name, value = line.split(":", 1)
                found[name].append(value)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def configured(airflow_home, monkeypatch):
    """Configure Airflow's metrics, as its task runner does when a task starts."""
    from airflow.sdk.configuration import conf
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    def configure(**options):
        for name, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", str(value))
        stats.initialize(
            factory=stats_utils.get_stats_factory(),
            export_legacy_names=conf.getboolean("metrics", "legacy_names_on"),
        )

    yield configure
    monkeypatch.undo()
    configure()


@pytest.fixture
def daemon(configured):
    daemon = Daemon()
    configured(statsd_on=True, statsd_host="127.0.0.1", statsd_port=daemon.port)
    yield daemon
    daemon.close()


@pytest.fixture
def shop(connection, monkeypatch):
    """Two txids are emitted."""
    return shop_with_two_txids(connection, monkeypatch)


@pytest.fixture
def task(airflow_home, shop, monkeypatch):
    return CommitTask(shop, monkeypatch)


def test_a_task_counts_what_it_causes_and_a_replay_is_none_of_the_commits(daemon, task):
    task.run(1)
    told = daemon.told()
    for name in ("reliability.{}", "reliability.{}.shop"):
        assert told[f"airflow.{name.format('attempts')}"] == ["1|c"]
        assert told[f"airflow.{name.format('commits')}"] == ["1|c"]
        assert told[f"airflow.{name.format('rows')}"] == [f"{ROW_LENGTH}|c"]
        [duration] = told[f"airflow.{name.format('commit_duration')}"]
        assert re.fullmatch(r"[\d.]+\|ms", duration)
    assert not any("failed" in name or "fenced" in name or "replays" in name for name in told)
    task.run(1, max_tries=5)  # as after a clear
    told = daemon.told()
    assert told["airflow.reliability.replays"] == ["1|c"]
    assert "airflow.reliability.commits" not in told


def test_an_attempt_without_a_commit_is_counted_and_a_task_without_one_is_not(
    daemon, task, connection, monkeypatch
):
    task.fails = True
    with pytest.raises(Exception, match="the driver ended"):
        task.run(1)
    told = daemon.told()
    ended = rows(connection, "SELECT lower(status) FROM reliability.attempt")
    assert told[f"airflow.reliability.{ended[0][0]}"] == ["1|c"]
    assert told["airflow.reliability.attempts.shop"] == ["1|c"]
    died = Mock(side_effect=AttemptIncomplete("no attempt"))
    monkeypatch.setattr("reliability.transaction.run.decide", died)
    with pytest.raises(Exception, match="no attempt"):
        task.run(1)
    assert daemon.told() == {}


def test_a_sweep_counts_the_leases_that_expired(daemon, task, shop, connection):
    shop.begin(2)
    execute(connection, "UPDATE reliability.attempt SET lease_until = now() - interval '1 s'")
    task.run(1)
    assert daemon.told()["airflow.reliability.fenced"] == ["1|c"]


class ThisProcess:
    """Runs the command line of the sweep's process in this one."""

    def run_command(self, command, env):
        return say(*command[3:], code=None)


@pytest.fixture
def sweep_task(airflow_home, monkeypatch):
    from reliability_airflow import housekeeping

    monkeypatch.setattr(housekeeping.SweepOperator, "_process", ThisProcess())
    return housekeeping.housekeeping_dag().task_dict["sweep"]


def test_housekeeping_tells_where_each_topology_stands(
    configured, daemon, sweep_task, shop, connection
):
    """E2: a wait that nobody sees lasts for days. Tags need no name of their own."""
    sweep_task.execute({})
    told = daemon.told()
    assert told["airflow.reliability.lag_txids"] == told["airflow.reliability.lag_txids.shop"]
    assert told["airflow.reliability.lag_txids"] == ["2|g"]
    assert told["airflow.reliability.blocked_txids.shop"] == ["0|g"]
    assert float(told["airflow.reliability.contribution_bytes"][0].removesuffix("|g")) > 0
    assert "airflow.reliability.last_commit_seconds" not in told  # nothing has committed
    execute(connection, "UPDATE reliability.request SET status = 'CLOSED', ended_at = now()")
    sweep_task.execute({})
    told = daemon.told()
    assert told["airflow.reliability.blocked_txids.shop"] == ["2|g"]
    assert told["airflow.reliability.blocked"] == ["1|g"]
    configured(statsd_influxdb_enabled=True, legacy_names_on=False)
    sweep_task.execute({})
    told = daemon.told()
    assert told["airflow.reliability.lag_txids,topology=shop"] == ["2|g"]
    assert not any(name.endswith(".shop") for name in told)


def test_stats_that_fail_and_figures_that_cannot_be_read_fail_no_task(
    daemon, task, sweep_task, connection, monkeypatch, caplog
):
    def fail(*_, **__):
        raise RuntimeError("no daemon")

    with monkeypatch.context() as patch:
        for name in ("gauge", "incr", "timing"):
            patch.setattr(f"airflow.sdk.observability.stats.{name}", fail)
        task.run(1)
        sweep_task.execute({})
    assert "a metric was not told: RuntimeError('no daemon')" in caplog.text
    assert task.shop.ask("SELECT curr_txid FROM reliability.topology") == [(2,)]
    execute(connection, "DROP VIEW reliability.metrics")
    sweep_task.execute({})
    assert daemon.told() == {}


def test_without_metrics_nothing_is_asked(configured, task, sweep_task, monkeypatch):
    configured(statsd_on=False)
    asked: list[str] = []
    ledger = SimpleNamespace(close=lambda: None, all=asked.append)
    with monkeypatch.context() as patch:
        patch.setattr(sweep_task, "ledger", lambda *_, **__: nullcontext(ledger))
        sweep_task.execute({})
    task.run(1)
    assert asked == []
