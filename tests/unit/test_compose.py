"""The container set-up, as far as it can be judged without a container."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from compose.select_locked import select
from dev.compose.secrets import FILES, FOLDER, STORED, admin_password, write_secrets
from dev.compose.verify import verify
from dev.demo.report import compare, expected_tables
from dev.errors import DevError

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
ROOT_OF_LOCK = "airflow-provider-reliability (pyproject.toml)"
LOCK = """\
ours==1 \\
    --hash=sha256:aa
    # via airflow-provider-reliability (pyproject.toml)
shared==2 \\
    --hash=sha256:bb
    # via
    #   linter
    #   ours
linter==3 \\
    --hash=sha256:cc
    # via airflow-provider-reliability (pyproject.toml:dev)
of-linter==4 ; python_full_version < '3.11' \\
    --hash=sha256:dd
    # via linter
"""


@pytest.fixture
def definition():
    return yaml.safe_load(COMPOSE_FILE.read_text())


def test_ports_are_published_on_this_machine_only(definition):
    ports = [port for one in definition["services"].values() for port in one.get("ports", [])]
    assert [port.startswith("127.0.0.1:${") for port in ports] == [True] * 3


def test_every_secret_of_the_compose_file_is_made(definition):
    files = {secret["file"] for secret in definition["secrets"].values()}
    files |= {one["env_file"] for one in definition["services"].values() if "env_file" in one}
    assert files == {str(FOLDER / name) for name in FILES}


def test_postgres_is_healthy_only_with_what_its_first_start_makes(definition):
    """If that was cut off, it starts without, and each service failed to log in."""
    script = (ROOT / "compose" / "postgres-init.sql").read_text()
    last = dict(re.findall(r"^CREATE (ROLE|DATABASE) (\w+)", script, re.MULTILINE))
    options = {f"--username={last['ROLE']}", f"--dbname={last['DATABASE']}", "--host=127.0.0.1"}
    assert options < {*definition["services"]["postgres"]["healthcheck"]["test"]}


def test_executors_get_the_ledger_s_files_only(definition):
    assert definition["services"]["spark-worker"]["secrets"] == ["pg_service", "pgpass"]


def test_secrets_are_made_once_in_a_folder_that_is_ours_alone(tmp_path):
    script = tmp_path / "compose" / "postgres-init.sql"
    script.parent.mkdir()
    script.touch(0o600)
    folder = write_secrets(tmp_path)
    assert stat.S_IMODE(script.stat().st_mode) == 0o644  # a clone may be made with another umask
    before = {name: (folder / name).read_text() for name in FILES}
    write_secrets(tmp_path)
    assert {name: (folder / name).read_text() for name in FILES} == before
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(admin_password(tmp_path)) >= 20


def test_the_secrets_of_containers_that_stay_are_kept_by_make_clean(tmp_path):
    folder = write_secrets(tmp_path)
    (folder.parent / "ports.json").touch()
    subprocess.run(["make", "--file", ROOT / "Makefile", "clean"], cwd=tmp_path, check=True)
    assert len([*folder.parent.rglob("*")]) == 1 + len(FILES)


@pytest.mark.parametrize("name", [name for name in FILES if name not in STORED])
def test_a_secret_that_was_lost_is_made_again_and_no_other_is_touched(tmp_path, name):
    folder = write_secrets(tmp_path)
    before = {name: (folder / name).read_text() for name in FILES}
    (folder / name).unlink()
    write_secrets(tmp_path)
    after = {name: (folder / name).read_text() for name in FILES}
    assert [one for one in FILES if after[one] != before[one]] in ([], [name])
    password = before["postgres.env"].partition("\nRELIABILITY_PASSWORD=")[2].strip()
    assert after["pgpass"].endswith(f":{password}\n")  # Postgres has stored it


@pytest.mark.parametrize("name", STORED)
def test_what_only_the_containers_know_is_not_made_anew(tmp_path, name):
    folder = write_secrets(tmp_path)
    (folder / name).unlink()
    before = {path: path.read_text() for path in folder.iterdir()}
    with pytest.raises(DevError, match=name):
        write_secrets(tmp_path)
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_the_image_gets_what_it_runs_and_no_linter():
    selected = select(LOCK, ROOT_OF_LOCK)
    assert "ours==1" in selected
    assert "shared==2" in selected
    assert "linter" not in selected.replace("#   linter", "")


def test_the_real_lock_loses_the_tests_tools_only():
    selected = select((ROOT / "requirements.lock").read_text(), ROOT_OF_LOCK)
    names = {line.partition("==")[0] for line in selected.splitlines() if "==" in line}
    assert {"apache-airflow", "asyncpg", "pyspark", "pandas", "psycopg2-binary"} <= names
    assert not {"ruff", "mypy", "pytest", "hypothesis"} & names


def test_a_month_is_compared_with_the_raw_file_of_that_month_alone():
    """A cent too much is not exact."""
    customers, days = expected_tables({"1998-04"})
    assert len(customers) == 1437
    assert all(row.is_exact for row in compare((customers, days), (customers, days)))
    day, orders, revenue = days[0]
    wrong = [(day, orders, revenue + Decimal("0.01")), *days[1:]]
    assert not all(row.is_exact for row in compare((customers, wrong), (customers, days)))


def test_containers_are_removed_and_the_exit_code_tells_when_docker_fails(tmp_path, monkeypatch):
    docker = tmp_path / "docker"
    told = "$8 $AIRFLOW_PORT $POSTGRES_PORT $SPARK_UI_PORT"
    docker.write_text(f'#!/bin/sh\necho "{told}" >> {tmp_path}/called\n[ "$8" != up ]\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert verify(tmp_path) == 1
    called, *ports = zip(*(line.split() for line in (tmp_path / "called").open()), strict=True)
    assert called == ("down", "build", "up", "logs", "down")
    assert len({*ports}) == 3  # a port of its own for each, and the same in each call
