"""Clusters: a standalone one, whose executors have files, environment and packages of their own.

And the pod that Spark asks Kubernetes for.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dev.services.processes import wait_until
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.graph import THE_STEP
from reliability.deployment.address import ConnIds, using
from reliability.deployment.topologies import load_topology
from reliability.spark.driver_environment import find_spark_submit
from reliability.spark.launch import DriverFailed, SparkSubmit, run_with_log
from reliability.spark.submission import Submission
from tests.integration.test_credentials import FIRST, airflow_knows, server  # noqa: F401
from tests.support.fix_pipeline import Pipeline, pipeline_of
from tests.support.fix_postgres import rows
from tests.support.kubernetes_api import kubernetes_api
from tests.support.standalone import Node, StandaloneCluster, environments, standalone_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MODULE = "shipped_words"
CODE = '''
"""Counts words slowly, in a module that executors have only if it is shipped to them."""

import time
from pathlib import Path

from reliability import Count, MemorySpout, State, Topology
from reliability.deployment.lazy import F


def slowly(word):
    Path(f"busy-{word}").touch()  # in the working folder of an executor
    time.sleep({"A": 0.2, "B": 0.8}[word])
    return word.lower()


def count(batch):
    return {"shipped_words": batch.withColumn("word", F.udf(slowly, "string")("word"))}


topology = Topology(
    "shipped_words",
    spout=MemorySpout(schema={"word": "string"}, partitions=[["A"] * 20, ["B"] * 20], take=20),
    process=count,
    states=[State("shipped_words", key={"word": "text"}, values={"times": Count()})],
)
'''
ALL = [("a", 20), ("b", 20)]
QUICKLY_LOST = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
}


@pytest.fixture
def cluster(environment, tmp_path):
    with standalone_cluster(tmp_path / "cluster", environment.java.home) as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The folder of the pipeline's module, on the path of this process alone."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def words(folder, connection, airflow_knows, monkeypatch) -> Pipeline:  # noqa: F811
    """The pipeline; only Airflow's connection leads to the ledger."""
    monkeypatch.delenv("RELIABILITY_DSN")
    return pipeline_of(load_topology(MODULE, MODULE), connection)


def run(
    words: Pipeline,
    cluster: StandaloneCluster,
    folder: Path,
    conf: Mapping[str, str] | None = None,
    shipped: str = f"{MODULE}.py",
    look: Callable[[], Any] = lambda: None,
) -> None:
    """Process and commit the batch, by a driver on this host in client mode."""
    program = find_spark_submit()
    assert program is not None
    launcher = SparkSubmit(
        program=program,
        master=cluster.master,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            **({"spark.submit.pyFiles": str(folder / shipped)} if shipped else {}),
            **(conf or {}),
        },
        variables={"PYSPARK_PYTHON": str(cluster.python)},
        code=[str(folder)],
    )
    assert words.emit(None) == [1]
    grant = words.begin(1)

    def is_wanted() -> bool:
        look()
        return True

    with using(ConnIds.of("kept", {})):
        run_with_log(launcher, Submission(module=MODULE, grant=grant, step=THE_STEP), is_wanted)
    words.seal(grant)
    words.runner.commit(1)


def counted(words: Pipeline) -> list[tuple[Any, ...]]:
    return rows(words.runner.connection, "SELECT word, times FROM shipped_words ORDER BY 1")


def test_a_batch_commits_though_executors_share_nothing_with_the_driver(cluster, words, folder):
    """G10: they get the credentials from their driver, and code by spark.submit.pyFiles."""
    seen: list[str] = []

    def look() -> None:
        seen.append(environments([e for worker in cluster.workers for e in worker.executors()]))

    run(words, cluster, folder, look=look)
    assert counted(words) == ALL
    told = "".join(seen)
    assert "SPARK_WORKER_DIR" in told
    assert not any(name in told for name in ("RELIABILITY_", "PGSERVICE", "PGPASS", "AIRFLOW_"))
    assert FIRST not in told
    assert str(folder) not in told


def test_code_that_is_not_shipped_is_missed_by_name(cluster, words, folder):
    with pytest.raises(DriverFailed) as raised:
        run(words, cluster, folder, shipped="")
    assert f"No module named '{MODULE}'" in raised.value.log.read_text()
    [(code, message)] = rows(
        words.runner.connection,
        "SELECT reason_code, reason FROM reliability.attempt WHERE status = 'FAILED'",
    )
    assert code == "PROCESS_FUNCTION_FAILED"
    assert f"No module named '{MODULE}'" in message


def in_the_middle(cluster: StandaloneCluster, disturb: Callable[[Node], None]) -> threading.Thread:
    """Disturb the first worker when functions run on both."""

    def wait_and_disturb() -> None:
        wait_until(lambda: all(w.is_busy() for w in cluster.workers), "both at work", 120)
        disturb(cluster.workers[0])

    thread = threading.Thread(target=wait_and_disturb)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGPWR], ids=["killed", "stopped", "retired"]
)
def test_a_worker_that_leaves_in_the_middle_costs_no_attempt(cluster, words, folder, number):
    """Spark runs its tasks on the other worker; SIGPWR is how a standalone worker is retired."""
    conf = {**QUICKLY_LOST, "spark.decommission.enabled": "true"}
    executors: list[Any] = []

    def disturb(worker: Node) -> None:
        executors.extend(worker.executors())
        if number == signal.SIGPWR:
            worker.process.send_signal(number)
        else:
            worker.signal(number)

    thread = in_the_middle(cluster, disturb)
    run(words, cluster, folder, conf)
    thread.join()
    assert executors
    assert counted(words) == ALL
    if number == signal.SIGPWR:
        assert "Decommission worker" in cluster.workers[0].log
    if number == signal.SIGSTOP:  # and comes back: it finds its attempt committed
        cluster.workers[0].signal(signal.SIGCONT)
        wait_until(lambda: not any(e.is_running() for e in executors), "its executor's end", 60)
        assert counted(words) == ALL
    statuses = rows(words.runner.connection, "SELECT status FROM reliability.attempt")
    assert statuses == [("COMMITTED",)]


@pytest.mark.parametrize(
    "conf",
    [
        {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.efficiency.enabled": "false",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.minTaskRuntime": "100ms",
        },
        {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.executorIdleTimeout": "1s",
            "spark.scheduler.minRegisteredResourcesRatio": "0",
        },
    ],
    ids=["speculation", "dynamic allocation"],
)
def test_a_batch_commits_once_with(cluster, words, folder, conf):
    run(words, cluster, folder, conf)
    assert counted(words) == ALL
    both_began_b = all(any(w.folder.glob("work/*/*/busy-B")) for w in cluster.workers)
    assert both_began_b == ("spark.speculation" in conf), "a second copy of the slow task"


ON_KUBERNETES = {
    "spark.submit.deployMode": "cluster",
    "spark.kubernetes.container.image": "registry.example/pipelines:1",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    "spark.kubernetes.driver.secrets.reliability": "/etc/reliability",
    "spark.kubernetes.executor.secrets.reliability": "/etc/reliability",
    "spark.kubernetes.driverEnv.PGSERVICEFILE": "/etc/reliability/pg_service.conf",
    "spark.executorEnv.PGSERVICEFILE": "/etc/reliability/pg_service.conf",
    "spark.kubernetes.submission.waitAppCompletion": "false",  # no pod will run
}


def test_the_pod_of_a_driver_has_the_mounted_secret_and_no_other(
    airflow_home, environment, tmp_path, monkeypatch
):
    """G10, by Spark's own client, with the properties of docs/deployment/clusters.md."""
    from reliability_airflow.spark_connection import spark_submit

    upload = tmp_path / "upload"
    upload.mkdir()
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")  # which names the addresses of a driver here
    conf = {**ON_KUBERNETES, "spark.kubernetes.file.upload.path": upload.as_uri()}
    grant = Grant(topology="t", attempt=TransactionAttempt(1, 0), nonce="n")
    submission = Submission(module="m", grant=grant, step=THE_STEP)
    with kubernetes_api() as taken:
        connection = {
            "conn_type": "spark",
            "host": f"k8s://{taken.url}",
            "password": FIRST,
            "extra": {"namespace": "etl"},
        }
        monkeypatch.setenv("AIRFLOW_CONN_A_SPARK", json.dumps(connection))
        ledger = {"conn_type": "reliability", "host": "db", "password": FIRST}
        monkeypatch.setenv("AIRFLOW_CONN_RELIABILITY_DEFAULT", json.dumps(ledger))
        with spark_submit("a_spark", conf, {"TZ": "UTC"}, ()) as submit:
            told = {**submit.environment(), "KUBECONFIG": "/dev/null"}
            subprocess.run(submit.command(submission), env=told, check=True, timeout=120)
    [pod] = taken.objects["Pod"]
    [container] = pod["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    [secret] = [volume for volume in pod["spec"]["volumes"] if "secret" in volume]
    assert container["image"] == "registry.example/pipelines:1"
    assert container["args"][-10:] == submission.arguments()
    assert Path(container["args"][-11]).name == "process_batch.py"
    assert pod["spec"]["serviceAccountName"] == "spark"
    assert secret["secret"] == {"secretName": "reliability"}
    assert mounted[secret["name"]] == "/etc/reliability"
    assert variables["PGSERVICEFILE"] == "/etc/reliability/pg_service.conf"
    assert variables["TZ"] == "UTC"
    [properties] = taken.objects["ConfigMap"]
    assert properties["metadata"]["namespace"] == "etl"
    assert "spark.executorEnv.PGSERVICEFILE" in str(properties)
    assert FIRST not in str(taken.objects)
