"""What spark-submit is given on a host, however the process that starts it was started."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from dev.services.processes import wait_until
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.spark import launch
from reliability.spark.driver_environment import driver_environment, find_spark_submit, java_home
from reliability.spark.imports import drop_package_folder
from reliability.spark.launch import (
    Driver,
    DriverFailed,
    SparkSubmit,
    WarmEngine,
    process_batch,
    run_with_log,
)
from reliability.spark.submission import Submission

GRANT = Grant(topology="shop", attempt=TransactionAttempt(7, 2), nonce="n")
SUBMISSION = Submission(module="spark_apps.shop", grant=GRANT, step="process")


@pytest.fixture(autouse=True)
def told_where_the_ledger_is(monkeypatch):
    """Let a driver be told no address: its environment says it."""
    monkeypatch.setenv("RELIABILITY_DSN", "service=reliability")


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def java(folder, version, modules="java.base jdk.incubator.vector"):
    program(folder / "bin" / "java")
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return str(folder)


def test_a_module_of_the_pipeline_is_not_taken_for_one_of_the_library_of_the_same_name(tmp_path):
    """spark-submit runs a file, and Python puts its folder first."""
    (tmp_path / "session.py").touch()
    link = tmp_path / "link"
    link.symlink_to(Path(process_batch()).parent)
    path = [str(Path(process_batch()).parent), str(link), str(tmp_path)]
    drop_package_folder(path)
    assert path == [str(tmp_path)]


def test_no_module_beside_the_file_of_spark_submit_is_called_like_one_of_python():
    """The driver's own imports run while that folder is still first."""
    beside = {file.stem for file in Path(process_batch()).parent.glob("*.py")}
    assert beside.isdisjoint(sys.stdlib_module_names)


# --- spark-submit and Python ---------------------------------------------------------------------


def test_spark_submit_is_spark_homes_else_the_paths_else_this_pythons(tmp_path, monkeypatch):
    beside, on_path, of_home = (
        program(tmp_path / folder / "spark-submit") for folder in ("beside", "path", "home/bin")
    )
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    environment = {"PATH": str(tmp_path)}
    assert find_spark_submit(environment) == str(beside)
    environment["PATH"] += os.pathsep + str(on_path.parent)
    assert find_spark_submit(environment) == str(on_path)
    environment["SPARK_HOME"] = str(tmp_path / "home")
    assert find_spark_submit(environment) == str(of_home)
    # who looks along the PATH of that environment, as Airflow's provider does, finds the same
    found = driver_environment(environment)
    assert find_spark_submit({"PATH": found["PATH"]}) == str(of_home)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_spark_submit({"PATH": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("master", "deploy_mode", "executors", "driver"),
    [
        ("local[2]", "", sys.executable, sys.executable),
        ("local", "client", sys.executable, sys.executable),
        ("spark://host:7077", "client", "/opt/python", sys.executable),
        ("", "", "/opt/python", sys.executable),
        ("yarn", "cluster", "/opt/python", "jupyter"),
    ],
)
def test_processes_of_this_host_run_this_python(
    monkeypatch, master, deploy_mode, executors, driver
):
    """The path of another host's Python is not known here. A replay finds both in its conf."""
    environment = {"PYSPARK_PYTHON": "/opt/python", "PYSPARK_DRIVER_PYTHON": "jupyter"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    conf = {"spark.master": master, "spark.submit.deployMode": deploy_mode}
    for found in (
        driver_environment(environment, master=master, deploy_mode=deploy_mode or None),
        SparkSubmit(program="spark-submit", conf=conf).environment(),
    ):
        assert (found["PYSPARK_PYTHON"], found["PYSPARK_DRIVER_PYTHON"]) == (executors, driver)


# --- Java ----------------------------------------------------------------------------------------


def test_a_java_home_with_a_java_is_kept(tmp_path):
    home = java(tmp_path / "own", "11")
    assert java_home({"JAVA_HOME": home, "PATH": ""}, tmp_path / "none") == home


def test_java_on_the_path_needs_no_home_and_a_home_without_java_is_left_out(tmp_path):
    program(tmp_path / "bin" / "java")
    environment = {"JAVA_HOME": "/nonexistent", "PATH": str(tmp_path / "bin")}
    assert java_home(environment, tmp_path / "none") is None
    assert "JAVA_HOME" not in driver_environment(environment)


def test_a_java_beside_this_python_is_on_the_path_of_spark_submit(tmp_path, monkeypatch):
    """Conda installs one there."""
    program(tmp_path / "java")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = driver_environment({"PATH": "/nonexistent"})
    assert "JAVA_HOME" not in found
    assert str(tmp_path) in found["PATH"].split(os.pathsep)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (["25.0.3", "21.0.8"], "21.0.8"),
        (["11.0.2", "17"], "17"),
        (["1.8.0_402", "11.0.2", "24"], None),
    ],
)
def test_a_java_of_the_host_is_found_where_the_environment_has_none(tmp_path, versions, chosen):
    for version in versions:
        java(tmp_path / f"java-{version}", version)
    (tmp_path / "default").mkdir()
    expected = str(tmp_path / f"java-{chosen}") if chosen else None
    assert java_home({"PATH": ""}, tmp_path) == expected


def test_a_java_that_cannot_start_spark_is_passed_over(tmp_path):
    """Small builds, as in some wheels, lack a module that Spark's launcher asks for."""
    java(tmp_path / "small", "17.0.1", modules="java.base")
    whole = java(tmp_path / "whole", "21.0.1")
    assert java_home({"PATH": ""}, tmp_path) == whole


# --- the process ---------------------------------------------------------------------------------


@pytest.fixture
def spark_submit(tmp_path):
    """A program in the place of spark-submit."""

    def make(script):
        path = tmp_path / "spark-submit"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return SparkSubmit(
            program=str(path), master="local[2]", conf={"a": "1"}, code=["/pipelines"]
        )

    return make


def wanted():
    return True


def test_spark_submit_gets_its_arguments_and_no_secret_of_airflows(
    spark_submit, tmp_path, monkeypatch
):
    for name in ("AIRFLOW_CONN_X", "_AIRFLOW__Y", "RELIABILITY_AIRFLOW_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    program = spark_submit(f'echo "$@" > {tmp_path}/arguments; env > {tmp_path}/environment')
    run_with_log(program, SUBMISSION, wanted)
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("--name reliability-shop --master local[2] --conf a=1 ")
    assert arguments.rstrip().endswith("--attempt 7:2 --nonce n --step process")
    environment = (tmp_path / "environment").read_text()
    assert "hunter2" not in environment
    assert "\nRELIABILITY_CODE=/pipelines\n" in f"\n{environment}"
    assert f"\nPATH={os.path.dirname(sys.executable)}:" in f"\n{environment}"


def test_a_warm_driver_has_the_hash_seed_of_a_spark_submit(monkeypatch):
    """V7: a set that a process function iterates was in another order in each attempt."""
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert WarmEngine().environment()["PYTHONHASHSEED"] == "0"


def test_what_a_failed_spark_submit_wrote_is_kept(spark_submit):
    with pytest.raises(DriverFailed, match="exit code 7") as raised:
        run_with_log(spark_submit("echo no such file; exit 7"), SUBMISSION, wanted)
    assert raised.value.log.read_text() == "no such file\n"
    raised.value.log.unlink()


@pytest.mark.parametrize(
    "error", [OSError(28, "no space"), UnicodeEncodeError("ascii", "…", 0, 1, "")]
)
def test_a_line_that_cannot_be_passed_on_does_not_stop_the_driver(spark_submit, error):
    """The driver got a closed pipe, and its attempt failed though nothing was wrong with it."""
    told = []

    def tell(line):
        told.append(line)
        raise error

    Driver(spark_submit("echo one …; echo two"), SUBMISSION).run(wanted, tell)
    assert told == ["one …", "two"]


def test_what_spark_submit_writes_is_read_while_it_runs(spark_submit, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "POLL_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deadline = time.monotonic() + 10

    def is_unread():
        read = [file.read_bytes() for file in tmp_path.glob("reliability-shop-*") if file.is_file()]
        return time.monotonic() < deadline and read != ["it is cold, …\n".encode()]

    with pytest.raises(DriverFailed, match="its attempt was ended"):
        run_with_log(spark_submit("echo it is cold, …; sleep 60"), SUBMISSION, is_unread)
    assert time.monotonic() < deadline


def test_a_spark_submit_that_nobody_wants_any_more_is_ended_with_its_children(
    spark_submit, tmp_path, monkeypatch
):
    monkeypatch.setattr(launch, "POLL_INTERVAL_SECONDS", 0.05)
    pid_file = tmp_path / "pid"

    def still_wanted():
        return not pid_file.exists()

    script = f"sleep 60 & echo $! > {pid_file}.draft; mv {pid_file}.draft {pid_file}; wait"
    with pytest.raises(DriverFailed, match="its attempt was ended") as raised:
        run_with_log(spark_submit(script), SUBMISSION, still_wanted)
    raised.value.log.unlink()
    child = int(pid_file.read_text())
    wait_until(lambda: not is_running(child), "the child's end", 10)


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
