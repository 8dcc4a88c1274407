"""Background processes are known by pid and birth."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from dev.errors import DeadlineError
from dev.services import airflow
from dev.services.airflow import AirflowServices
from dev.services.ports import HOST, Ports, is_free
from dev.services.processes import Background, family, is_gone, marked, stop_all, wait_until

WITH_CHILD = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "time.sleep(60)"
)


@pytest.mark.parametrize("seconds", [0, 5])
def test_a_reused_pid_is_not_the_remembered_process(tmp_path: Path, seconds: int) -> None:
    background, mine = Background(name="one", state_dir=tmp_path), psutil.Process()
    background.record.parent.mkdir()
    record = {"pid": mine.pid, "created": mine.create_time() - seconds}
    background.record.write_text(json.dumps(record))
    assert background.find() == (None if seconds else mine)


def test_stopping_ends_the_descendants_too(tmp_path: Path) -> None:
    background = Background(name="parent", state_dir=tmp_path)
    background.start([sys.executable, "-c", WITH_CHILD], {}, tmp_path, depends_on={})
    parent = background.find()
    assert parent is not None
    wait_until(lambda: len(family(parent)) == 2, "child", 20)
    both = family(parent)
    stop_all([background], seconds=0.2)
    assert not background.is_alive()
    assert all(map(is_gone, both))


def test_changed_settings_restart_a_process(tmp_path: Path) -> None:
    background = Background(name="one", state_dir=tmp_path)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    pids = []
    for port in ("1", "1", "2"):
        background.start(command, {}, tmp_path, depends_on={"port": port})
        process = background.find()
        assert process is not None
        pids.append(process.pid)
    stop_all([background])
    assert pids[0] == pids[1] != pids[2]


def test_waiting_ends_at_its_deadline() -> None:
    with pytest.raises(DeadlineError, match="the moon"):
        wait_until(lambda: False, "the moon", 0)


def test_a_port_is_remembered_until_somebody_takes_it(tmp_path: Path) -> None:
    ports = Ports(file=tmp_path / "ports.json")
    first = ports.free_port("web")
    assert ports.free_port("web") == first
    with socket.create_server((HOST, first)):
        assert not is_free(first)
        assert ports.free_port("web") != first


def test_the_workers_of_a_scheduler_that_was_killed_alone_are_ended(tmp_path, monkeypatch) -> None:
    """They held its locks in Airflow's database: the next one passed over what they covered.

    Those of a demo, whose folder is below, are its own.
    """
    monkeypatch.setattr(airflow, "COMPONENTS", {})
    postgres: Any = SimpleNamespace(port=1)
    services = AirflowServices(
        root=tmp_path,
        state_dir=tmp_path,
        ports=Ports(file=tmp_path / "ports.json"),
        postgres=postgres,
        common_env=dict,
    )
    idle = "worker -- LocalExecutor: <idle>"
    worker, *others = (
        titled(title, tmp_path / folder / "airflow")
        for title, folder in ((idle, "."), ("triggerer", "."), (idle, "demo"))
    )
    services.start()
    try:
        assert worker.wait(10) == -signal.SIGKILL
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.wait()


def titled(title: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start what gave itself a title, as Airflow's processes do, and so lost its environment."""
    folder.mkdir(parents=True, exist_ok=True)
    sleep = shutil.which("sleep")
    return subprocess.Popen([f"airflow {title}", "60"], executable=sleep, cwd=folder, env={})


def test_an_orphan_that_overwrote_its_environment_is_found_by_its_folder(tmp_path: Path) -> None:
    orphan = titled("worker -- idle", tmp_path / "airflow")
    try:
        assert [process.pid for process in marked(str(tmp_path))] == [orphan.pid]
    finally:
        orphan.kill()
        orphan.wait()
    assert marked(str(tmp_path)) == []
