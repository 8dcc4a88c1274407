"""How a task starts Spark: what spark-submit is told by connection and parameters, and its end."""

from __future__ import annotations

import base64
import json
import sys
import threading
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dev.services.processes import wait_until
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.errors import (
    DeployModeNotSupported,
    InvalidDefinition,
    SparkConnectionMissing,
)
from reliability.spark import launch
from reliability.spark.driver_environment import CLASSIC
from reliability.spark.launch import DriverFailed
from reliability.transaction.process import attempt_messages
from spark_apps import cdnow_revenue

GRANT = Grant(topology="t", attempt=TransactionAttempt(1, 0), nonce="n")
NOTES_DOWN = f"""#!{sys.executable}
import json, os, pathlib, sys
options = sys.argv[1 : sys.argv.index("--conf")] if "--conf" in sys.argv else sys.argv[1:]
conf = dict(word.split("=", 1) for word in sys.argv if word.startswith("spark."))
files = {{path: open(path).read() for path in conf.values() if os.path.isfile(path)}}
with open(os.environ["NOTES"], "w") as notes:
    json.dump({{"arguments": sys.argv, "conf": conf, "files": files,
               "environment": dict(os.environ)}}, notes)
"""


@pytest.fixture(autouse=True)
def is_wanted(monkeypatch):
    """Tell each driver that its attempt is wanted: there is no ledger to ask."""
    wanted = threading.Event()
    wanted.set()
    monkeypatch.setattr(attempt_messages, "is_wanted", lambda *_: wanted.is_set())
    return wanted


@pytest.fixture
def spark_submit(airflow_home, tmp_path, monkeypatch):
    """Put a script in the place of spark-submit; by default it notes down what it is told."""

    def put(script, name="spark-submit"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    connect(monkeypatch, host="local")
    put(NOTES_DOWN)
    return put


def connect(monkeypatch, **connection):
    told = json.dumps({"conn_type": "spark", **connection})
    monkeypatch.setenv("AIRFLOW_CONN_A_SPARK", told)


def operator_of(**arguments):
    from reliability_airflow.operators import TransactionOperator

    return TransactionOperator(
        task_id="t",
        topology=cdnow_revenue.topology,
        txid=1,
        step=None,
        conn_id="a_spark",
        **arguments,
    )


def noted(tmp_path, **arguments):
    """Run a driver, and return what it has noted down."""
    operator_of(**arguments).submit({}, None, GRANT, "process")
    return json.loads((tmp_path / "notes").read_text())


@pytest.mark.parametrize(
    ("connection", "master", "conf"),
    [
        ({"host": "local[4]"}, "local[4]", {}),
        ({"host": "yarn", "extra": {"queue": "night"}}, "yarn", {"spark.yarn.queue": "night"}),
        ({"host": "spark://m", "port": 7077}, "spark://m:7077", {}),
        ({"host": "m", "port": 7077}, "spark://m:7077", {}),
        (
            {"host": "k8s://https://m", "port": 443, "extra": {"namespace": "etl"}},
            "k8s://https://m:443",
            {"spark.kubernetes.namespace": "etl"},
        ),
        ({"conn_type": "k8s", "host": "m"}, "k8s://m", {}),
        (
            {"host": "yarn", "extra": {"deploy-mode": "cluster"}},
            "yarn",
            {"spark.submit.deployMode": "cluster"},
        ),
    ],
)
def test_a_connection_means_what_it_means_to_airflows_provider(
    spark_submit, tmp_path, monkeypatch, connection, master, conf
):
    """The provider itself is asked: if it reads connections in another way, this fails."""
    from airflow.providers.apache.spark.hooks import spark_submit as provider

    connect(monkeypatch, **connection)
    monkeypatch.delenv("RELIABILITY_HOME", raising=False)
    told = noted(tmp_path)
    assert told["arguments"][3:5] == ["--master", master]
    assert told["conf"] == conf | CLASSIC  # no RELIABILITY_HOME, which this worker does not have
    monkeypatch.setattr(provider, "kube_client", object(), raising=False)
    command = provider.SparkSubmitHook(conn_id="a_spark")._build_spark_submit_command("file")
    assert command[command.index("--master") + 1] == master
    assert all(any(value in word for word in command) for value in conf.values())


@pytest.mark.parametrize(
    ("connection", "master"),
    [({"host": "local[4]"}, "local[4]"), ({"host": "m", "port": 7077}, "spark://m:7077")],
)
def test_a_connection_that_was_added_without_airflows_provider_leads_to_spark_too(
    spark_submit, tmp_path, monkeypatch, connection, master
):
    """Airflow's command line stores a type that it does not know as `generic`."""
    connect(monkeypatch, conn_type="generic", **connection)
    assert noted(tmp_path)["arguments"][3:5] == ["--master", master]


def test_a_connections_keytab_is_a_file_of_this_user_while_spark_runs(
    spark_submit, tmp_path, monkeypatch
):
    encoded = base64.b64encode(b"a secret").decode()
    connect(monkeypatch, host="yarn", extra={"keytab": encoded, "principal": "etl"})
    told = noted(tmp_path)
    file = told["conf"]["spark.kerberos.keytab"]
    assert told["conf"]["spark.kerberos.principal"] == "etl"
    assert told["files"][file] == "a secret"
    assert not Path(file).exists()
    assert "a secret" not in str(told["arguments"])


def test_a_connection_names_one_of_sparks_programs_and_no_other(
    spark_submit, tmp_path, monkeypatch
):
    """Who may edit a connection may not run any program as the worker."""
    connect(monkeypatch, host="yarn", extra={"spark-binary": "spark3-submit"})
    with pytest.raises(FileNotFoundError, match="spark3-submit is neither on the PATH"):
        noted(tmp_path)
    spark_submit(NOTES_DOWN, "spark3-submit")
    assert noted(tmp_path)["arguments"][0].endswith("/spark3-submit")
    connect(monkeypatch, host="yarn", extra={"spark-binary": "sh"})
    with pytest.raises(ValueError, match="must be one of spark-submit"):
        noted(tmp_path)


def test_without_its_connection_a_task_says_how_to_make_it(airflow_home):
    with pytest.raises(SparkConnectionMissing) as raised:
        operator_of().check_engine()
    assert "airflow connections add a_spark" in raised.value.what_to_do


@pytest.mark.parametrize("host", ["spark://m", "local[2]"])
def test_a_deploy_mode_that_a_cluster_lacks_is_refused_before_an_attempt_begins(
    spark_submit, tmp_path, monkeypatch, host
):
    """Spark's own refusal of it was tried again, with one failed attempt each time."""
    connect(monkeypatch, host=host, extra={"deploy-mode": "cluster"})
    with pytest.raises(DeployModeNotSupported, match="takes no Python in deploy mode cluster"):
        operator_of().check_engine()
    operator_of(conf={"spark.submit.deployMode": "client"}).check_engine()
    with pytest.raises(DeployModeNotSupported):
        launch.spark_submit_here(host, {"spark.submit.deployMode": "cluster"})
    connect(monkeypatch, host="yarn", extra={"deploy-mode": "cluster"})
    operator_of().check_engine()
    assert not (tmp_path / "notes").exists()


SUBMISSION = [
    *("--topology", "t", "--module", "spark_apps.cdnow_revenue"),
    *("--attempt", "1:0", "--nonce", "n", "--step", "process"),
]
ON_YARN = {
    "spark.submit.pyFiles": "pipelines.zip",
    "spark.yarn.appMasterEnv.PGSERVICEFILE": "/etc/reliability/pg_service.conf",
    "spark.executorEnv.PGSERVICEFILE": "/etc/reliability/pg_service.conf",
}
ON_KUBERNETES = {
    "spark.kubernetes.container.image": "registry.example/pipelines:1",
    "spark.kubernetes.file.upload.path": "s3a://spark/upload",
    "spark.kubernetes.driver.secrets.reliability": "/etc/reliability",
    "spark.kubernetes.executor.secrets.reliability": "/etc/reliability",
    "spark.kubernetes.driverEnv.PGSERVICEFILE": "/etc/reliability/pg_service.conf",
    "spark.executorEnv.PGSERVICEFILE": "/etc/reliability/pg_service.conf",
}


@pytest.mark.parametrize(
    ("host", "port", "master", "extra", "from_extra", "conf", "variable"),
    [
        (
            "yarn", None, "yarn", {"queue": "night", "principal": "etl"},
            {"spark.yarn.queue": "night", "spark.kerberos.principal": "etl"},
            ON_YARN, "spark.yarn.appMasterEnv.",
        ),
        (
            "k8s://https://kube", 6443, "k8s://https://kube:6443", {"namespace": "etl"},
            {"spark.kubernetes.namespace": "etl"},
            ON_KUBERNETES, "spark.kubernetes.driverEnv.",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_the_whole_command_for_yarn_and_kubernetes(
    spark_submit, tmp_path, monkeypatch, host, port, master, extra, from_extra, conf, variable,
    deploy_mode, capsys,
):  # fmt: skip
    """G10: neither the connection's own secrets nor the ledger's are in it, or in its properties.

    docs/deployment/clusters.md has the properties. In mode cluster, variables are among them. A
    driver's environment is not a copy of its task's.
    """
    connection = {"host": host, "login": "etl", "password": "hunter2"}
    extra = {**extra, "deploy-mode": deploy_mode, "token": "hunter2"}
    connect(monkeypatch, **connection, port=port, extra=extra)
    ledger = {"conn_type": "reliability", "host": "db", "password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_RELIABILITY_DEFAULT", json.dumps(ledger))
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    told = noted(tmp_path, conf=conf | {"spark.api.mode": "connect"}, env_vars={"KEY": "k3y"})
    expected = {"spark.submit.deployMode": deploy_mode, **from_extra, **conf, **CLASSIC}
    if deploy_mode == "cluster":
        expected |= {f"{variable}RELIABILITY_HOME": str(tmp_path), f"{variable}KEY": "k3y"}
    assert (told["conf"], told["environment"]["KEY"]) == (expected, "k3y")
    assert "k3y" not in capsys.readouterr().out
    assert not [name for name in told["environment"] if name.startswith("AIRFLOW")]
    properties = [word for key, value in expected.items() for word in ("--conf", f"{key}={value}")]
    begin, words, end = told["arguments"][1:5], told["arguments"][5:-11], told["arguments"][-11:]
    assert begin == ["--name", "reliability-t", "--master", master]
    assert sorted(words) == sorted(properties)
    assert end == [launch.process_batch(), *SUBMISSION]
    assert "hunter2" not in str(told)


def test_parameters_of_sparksubmitoperator_in_default_args_are_properties(airflow_home):
    """Its users know them; each that is a property is an option of spark-submit there.

    By others a job would run as another user, or with other properties, than it says.
    """
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from reliability_airflow import topology_dag
    from reliability_airflow.spark_connection import NOT_PROPERTIES, PROPERTIES

    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    make = partial(topology_dag, cdnow_revenue.topology, schedule="@daily", start_date=start)
    dag = make(
        conf={"spark.executor.memory": "1g", "spark.x": "y"},
        default_args={"executor_memory": "2g", "driver_memory": None, "env_vars": {"TZ": "UTC"}},
    )
    task: Any = dag.task_dict["transaction.process"]
    assert task.conf == {"spark.executor.memory": "2g", "spark.x": "y"}
    assert task.env_vars == {"TZ": "UTC"}
    known: Any = dict.fromkeys([*PROPERTIES, *NOT_PROPERTIES])
    SparkSubmitOperator(task_id="t", **known)
    for name in ("properties_file", "proxy_user"):
        with pytest.raises(InvalidDefinition, match=f"{name} would have no effect"):
            make(default_args={name: "etl"})


def test_what_spark_submit_says_is_in_the_tasks_log_without_values_of_secrets(spark_submit, capsys):
    spark_submit("#!/bin/sh\necho it is called $1; echo fails >&2; exit 3")
    conf = {"spark.x.password": "hunter2", "spark.z.secret": "a hunter2", "spark.y": "shown"}
    with pytest.raises(DriverFailed, match="exit code 3"):
        operator_of(conf=conf).submit({}, None, GRANT, "process")
    log = capsys.readouterr().out
    assert "it is called --name" in log
    assert "fails" in log
    assert "spark.y=shown" in log
    assert "hunter2" not in log


def test_a_driver_that_was_killed_is_told_by_its_signal(spark_submit):
    """The ledger keeps the reason, and people read it: the command says nothing about why."""
    spark_submit("#!/bin/sh\nkill -9 $$")
    with pytest.raises(DriverFailed, match=r"^killed by SIGKILL$"):
        operator_of().submit({}, None, GRANT, "process")


def test_openlineages_parent_reaches_spark_submit_each_time(spark_submit, tmp_path, monkeypatch):
    """By what the provider declares: a name that goes fails this."""
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for try_number in range(2):
        run = SimpleNamespace(
            dag_id="d", run_id="r", logical_date=now, run_after=now, clear_number=0, conf={}
        )
        ti = SimpleNamespace(
            dag_id="d", task_id="t", try_number=try_number, map_index=-1, dag_run=run,
            logical_date=now, run_after=now, get_template_context=lambda run=run: {"dag_run": run},
        )  # fmt: skip
        operator_of().submit({"ti": ti}, None, GRANT, "process")
        told = json.loads((tmp_path / "notes").read_text())
        assert told["conf"]["spark.openlineage.parentJobName"] == "d.t"


@pytest.mark.parametrize("engine", ["submit", "warm"])
@pytest.mark.parametrize("ends", ["its attempt was ended", "killed by SIGTERM"])
def test_a_driver_is_ended_when_its_attempt_was_and_when_its_task_is(
    spark_submit, tmp_path, monkeypatch, capsys, is_wanted, engine, ends
):
    """A7, and Airflow's on_kill; by either engine."""
    application = tmp_path / "application.py"
    up = tmp_path / "up"
    application.write_text(f"import time; open({str(up)!r}, 'w'); time.sleep(600)")
    spark_submit(f"#!/bin/sh\nexec {sys.executable} {application}")
    monkeypatch.setenv("RELIABILITY_ENGINE", engine)
    monkeypatch.setattr(launch, "process_batch", lambda: str(application))
    monkeypatch.setattr(launch, "POLL_INTERVAL_SECONDS", 0.02)
    operator = operator_of(conf={"spark.executor.memory": "1g"})

    def end():
        wait_until(up.exists, "the driver to run", 60)
        if ends == "killed by SIGTERM":
            operator.on_kill()
        else:
            is_wanted.clear()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(DriverFailed, match=ends):
        operator.submit({}, None, GRANT, "process")
    thread.join()
    assert ("conf is not used" in capsys.readouterr().out) == (engine == "warm")
    operator.on_kill()  # nothing runs any more


def test_a_worker_that_was_started_by_its_path_finds_spark_submit_and_this_python(
    spark_submit, tmp_path, monkeypatch
):
    """Its PATH has no virtual environment, and what its host says of Python is for others."""
    for name in ("JAVA_HOME", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "/nonexistent/python")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    python = str(tmp_path / "bin" / "python")  # beside spark-submit
    monkeypatch.setattr(sys, "executable", python)
    told = noted(tmp_path)
    assert told["arguments"][0] == str(tmp_path / "bin" / "spark-submit")
    environment = told["environment"]
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == python
