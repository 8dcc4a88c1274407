"""Two schedulers and two triggerers, of which one is killed; and a triggerer with 100 waiters."""

from __future__ import annotations

import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from dev.services import airflow_component
from dev.services.airflow import COMPONENTS
from dev.services.ports import HOST
from dev.services.processes import Background, family, kill, run, stop_all
from tests.end_to_end.dates import wait_for
from tests.end_to_end.test_slow_scheduler import mismatches
from tests.support.fix_postgres import ROOT, own_session, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WORKER = ("celery", "worker", "--skip-serve-logs")
JOBS = {"scheduler": "SchedulerJob", "triggerer": "TriggererJob"}
WAITERS = 100
WENT_ON = 5  # two do not wait
BROKER = "redis-server"


@contextmanager
def another_of_each(airflow) -> Iterator[dict[str, list[Background]]]:
    """Run a second scheduler and a second triggerer; afterwards there is one of each again."""
    services = airflow.airflow
    second = {name: Background(name=f"{name}-2", state_dir=services.state_dir) for name in JOBS}
    for name, background in second.items():
        command = [sys.executable, airflow_component.__file__, *COMPONENTS[name]]
        background.start(command, services.env(), services.home, depends_on={})
    try:
        for job in JOBS.values():
            wait_for(partial(are_two, services, job), f"a second {job}")
        yield {name: [services.background(name), other] for name, other in second.items()}
    finally:
        stop_all(second.values(), 1)
        airflow.up(lambda text: None)


def are_two(services, job_type) -> bool:
    """Say whether two jobs of a kind have a fresh heartbeat."""
    query = {"job_type": job_type, "is_alive": True, "job_state": "running"}
    return bool(services.api().get("/api/v2/jobs", **query)["total_entries"] == 2)


def works(background: Background) -> bool:
    """Say whether a scheduler runs a driver."""
    leader = background.find()
    return leader is not None and any("stand_in" in " ".join(words(p)) for p in family(leader))


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_run_goes_on_when_one_of_two_schedulers_and_of_two_triggerers_is_killed(dates, airflow):
    """With the scheduler die the tasks that it runs, and their drivers."""
    dag = dates.dag("words_doubled")
    for number in range(1, 4):
        for file in ("a", "b"):
            dag.deliver(f"2026-01-0{number}", "man", "dog", file=file)
    dag.hold()
    with another_of_each(airflow) as both:
        dag.unpause()
        wait_for(lambda: "1:0" in dag.attempts(), "an attempt")
        wait_for(lambda: any("deferred" in dag.tasks(r).values() for r in dag.runs()), "a waiter")
        victim = next(one for one in both["scheduler"] if works(one))
        for one in (victim, both["triggerer"][0]):
            leader = one.find()
            assert leader is not None
            kill(family(leader))
        began = time.monotonic()
        dag.let_go()
        wait_for(lambda: dag.states_now() == ["success"] * 3, "the runs", 600)
        print(f"two of each: {time.monotonic() - began:.0f} s after the kill", dag.attempts())
    assert dag.counted() == {"dog": 6, "man": 6}
    assert mismatches(dag) == []


@contextmanager
def celery(airflow, port) -> Iterator[Callable[[], float]]:
    """Let a Celery worker run the tasks, which it gets from a Redis; yield what kills it."""
    services, url = airflow.airflow, f"redis://{HOST}:{port}/0"
    env = services.env() | {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CELERY__BROKER_URL": url,
        "AIRFLOW__CELERY__WORKER_CONCURRENCY": "4",
    }
    own = partial(Background, state_dir=services.state_dir)
    broker, worker, scheduler = own(name="redis"), own(name="worker"), own(name="scheduler")
    broker.start([BROKER, "--bind", HOST, "--port", str(port), "--save", ""], env, ROOT, {})

    def start(background: Background, arguments: tuple[str, ...], since: str = url) -> None:
        command = [sys.executable, airflow_component.__file__, *arguments]
        background.start(command, env, services.home, depends_on={"celery": since})

    def kill_and_start_again() -> float:
        """Kill the worker with all that it runs; return the moment."""
        leader = worker.find()
        assert leader is not None
        kill(family(leader))
        moment = time.monotonic()
        start(worker, WORKER, str(moment))
        return moment

    start(scheduler, COMPONENTS["scheduler"])
    start(worker, WORKER)
    try:
        yield kill_and_start_again
    finally:
        stop_all([scheduler, worker, broker], 1)
        airflow.up(lambda text: None)


@pytest.mark.skipif(not shutil.which(BROKER), reason="there is no Redis on this host")
def test_a_celery_worker_is_killed_in_the_middle_of_a_step_and_of_a_commit(dates, airflow, ledger):
    dag = dates.dag("words_celery")
    for file in ("a", "b"):
        dag.deliver("2026-01-01", "man", "dog", file=file)
    dag.hold()
    with celery(airflow, free_port()) as kill_worker:
        dag.unpause()
        wait_for(lambda: "1:0" in dag.attempts(), "an attempt", 600)
        began = kill_worker()
        wait_for(lambda: "1:1" in dag.attempts(), "another attempt", 600)
        print(f"celery: another attempt {time.monotonic() - began:.0f} s after the kill of a step")
        with closing(own_session(ledger.dsn)) as locking, locking.cursor() as cursor:
            cursor.execute("LOCK TABLE words_celery IN EXCLUSIVE MODE")
            dag.let_go()
            wait_for(lambda: waits_for_a_lock(ledger), "a commit in its middle", 600)
            began = kill_worker()
        wait_for(lambda: dag.states_now() == ["success"], "the run", 600)
        print(f"celery: done {time.monotonic() - began:.0f} s after the kill of a commit")
        print("celery:", dag.attempts())
    assert dag.counted() == {"dog": 2, "man": 2}
    assert dag.commits() == ["1:1", "2:1"]


def waits_for_a_lock(ledger):
    query = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND application_name LIKE 'reliability%commit%'"
    )
    return bool(rows(ledger, query))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def pollers(ledger):
    like = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'reliability poller%'"
    return len(rows(ledger, like))


def renewed_since(ledger, dag, moment):
    """Return how many requests of a topology were renewed since."""
    query = (
        "SELECT count(*) FROM reliability.request"
        " WHERE topology = %(topology)s AND renewed_at > %(moment)s"
    )
    return rows(ledger, query, topology=dag.dag_id, moment=moment)[0][0]


def now(ledger):
    return rows(ledger, "SELECT clock_timestamp()")[0][0]


def test_a_hundred_waiters_outlive_their_triggerer_and_another_airflows_housekeeping(
    dates, airflow, ledger, tmp_path
):
    dag = dates.dag("words_crowd")
    for number in range(WAITERS + 2):
        dag.deliver("2026-01-01", "man", file=f"{number:03}")
    dag.hold()
    dag.unpause()
    wait_for(partial(have_left, dag, WAITERS), "the waiters", 1200)
    [run_id] = dag.runs()
    assert pollers(ledger) == 3
    keep_house_elsewhere(airflow, tmp_path)

    triggerer = airflow.airflow.background("triggerer")
    kill(family(triggerer.find()))
    began = time.monotonic()
    airflow.up(lambda text: None)
    print(f"crowd: the triggerer is up after {time.monotonic() - began:.0f} s")
    killed_at = now(ledger)
    wait_for(lambda: renewed_since(ledger, dag, killed_at) >= WAITERS, "a renewal of all", 300)
    print(f"crowd: all are waited for after {time.monotonic() - began:.0f} s")
    assert pollers(ledger) == 3
    dag.let_go()
    wait_for(lambda: len(dag.commits()) >= WENT_ON, "some to commit", 600)
    print(f"crowd: {WENT_ON} have committed after {time.monotonic() - began:.0f} s")
    assert not {"failed", "up_for_retry"} & {*dag.tasks(run_id).values()}
    assert set(dag.tries(run_id).values()) <= {0, 1}
    assert mismatches(dag) == []
    dag.mark(run_id, "failed")  # the others would take minutes


def have_left(dag, least):
    """Say whether so many tasks wait without a worker slot."""
    return any(list(dag.tasks(r).values()).count("deferred") >= least for r in dag.runs())


def keep_house_elsewhere(airflow, folder: Path) -> None:
    """Run the housekeeping of an Airflow that has none of the runs."""
    env = airflow.airflow.env() | {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__CORE__DAGS_FOLDER": str(airflow.root / "dags"),
        "RELIABILITY_DSN": "service=reliability",
    }
    env.pop("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST")
    for arguments in (["db", "migrate"], ["dags", "test", "reliability_housekeeping"]):
        command = [sys.executable, airflow_component.__file__, *arguments]
        run(command, " ".join(arguments), env=env, cwd=folder)
