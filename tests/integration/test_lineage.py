"""What the tasks tell OpenLineage, as Airflow's provider for it asks them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from reliability import FileSpout, TableSpout
from reliability.core.errors import AttemptIncomplete
from reliability.core.lineage import Dataset, table_dataset
from reliability.spouts.file_item import FileItem
from reliability.transaction.correct.park import skip
from tests.replay.shop import ROW_LENGTH, Batches
from tests.support.commit_task import CommitTask, shop_with_two_txids

pytest.importorskip("airflow.providers.openlineage")
SOURCE = Dataset(namespace="s3://bucket", name="orders", rows=ROW_LENGTH, files=2, bytes=100)


@pytest.fixture
def shop(connection, monkeypatch):
    """Two txids are emitted; their spout says where they come from."""
    monkeypatch.setattr(Batches, "datasets", lambda *_: [SOURCE], raising=False)
    return shop_with_two_txids(connection, monkeypatch)


@pytest.fixture
def commit(airflow_home, shop, monkeypatch):
    return CommitTask(shop, monkeypatch)


def told(task_instance, state="success"):
    """Return what is sent of a task: its facets and datasets, as JSON has them."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager
    from airflow.utils.state import TaskInstanceState
    from openlineage.client.serde import Serde

    task = task_instance.task
    run = SimpleNamespace(run_id=task_instance.run_id)
    found = ExtractorManager().extract_metadata(run, task, TaskInstanceState(state), task_instance)
    return json.loads(Serde.to_json(found))


def test_a_commit_names_its_attempt_sources_and_tables(commit, connection):
    commit.run(1)
    found = told(commit.context["ti"])
    facet = found["run_facets"]["reliability_transaction"]
    accounts = facet.pop("accounts")
    assert {name: value for name, value in facet.items() if not name.startswith("_")} == {
        "topology": "shop",
        "txid": 1,
        "attempt": "1:0",
        "status": "COMMITTED",
        "kind": "COMMIT",
        "is_dry_run": False,
        "commit_number": 1,
        "rows": ROW_LENGTH,
    }
    assert accounts["exact"] == {"applied": ROW_LENGTH, "dropped": 0, "quarantined": 0}
    [source] = found["inputs"]
    assert (source["namespace"], source["name"]) == ("s3://bucket", "orders")
    statistics = source["inputFacets"]["inputStatistics"]
    assert {name: statistics[name] for name in ("rowCount", "size", "fileCount")} == {
        "rowCount": ROW_LENGTH,
        "size": 100,
        "fileCount": 2,
    }
    host, port, database = connection.server()
    tables = {dataset["name"]: dataset for dataset in found["outputs"]}
    assert set(tables) == {f"{database}.public.{s.name}" for s in commit.shop.topology.states}
    log = tables[f"{database}.public.log"]
    assert log["namespace"] == f"postgres://{host}:{port}" or host.startswith("/")
    assert log["outputFacets"]["outputStatistics"]["rowCount"] == ROW_LENGTH
    fields = tables[f"{database}.public.exact"]["facets"]["schema"]["fields"]
    assert [(field["name"], field.get("type")) for field in fields] == [
        ("k", "bigint"),
        ("word", "text"),
        ("n", "bigint"),
        ("prices", "bigint"),
        ("total", "numeric(14,2)"),
        ("mean", "numeric"),
    ]


def test_a_task_whose_attempt_failed_or_was_none_wrote_no_table(commit, connection, monkeypatch):
    """A task that reached no attempt tells nothing; one whose txid is skipped, what counts."""

    def decide(*_):
        raise AttemptIncomplete("no attempt")

    with monkeypatch.context() as patch:
        patch.setattr("reliability.transaction.run.decide", decide)
        with pytest.raises(AttemptIncomplete):
            commit.run(1)
    assert told(commit.context["ti"], "failed")["run_facets"] == {}

    commit.fails = True
    with pytest.raises(AttemptIncomplete):
        commit.run(1)
    found = told(commit.context["ti"], "failed")
    assert found["outputs"] == []
    assert found["run_facets"]["reliability_transaction"]["status"] == "FENCED"
    assert found["run_facets"]["reliability_transaction"]["reason_code"]

    skip(connection, "shop", 1, "a duplicate")
    commit.run(1)
    found = told(commit.context["ti"])
    facet = found["run_facets"]["reliability_transaction"]
    assert (facet["attempt"], facet["status"], facet["commit_number"]) == ("1:1", "COMMITTED", 1)
    assert len(found["outputs"]) == len(commit.shop.topology.states)


def test_a_dry_run_writes_no_table(commit):
    commit.run(1)
    commit.run(1, max_tries=5, dry_run=True)
    found = told(commit.context["ti"])
    assert found["outputs"] == []
    facet = found["run_facets"]["reliability_transaction"]
    assert (facet["kind"], facet["is_dry_run"], facet["status"]) == ("REPLAY", True, "DRY_RUN")


def test_the_folders_of_files_are_the_datasets(monkeypatch):
    monkeypatch.setenv("RELIABILITY_HOME", "/home")
    items = [
        FileItem(path=path, size=10, mtime_ns=1, rows=3)
        for path in ("in/a.parquet", "in/b.parquet", "/elsewhere/c", "s3a://bucket/d/e.csv")
    ]
    assert FileSpout("in/*").datasets(items) == [
        Dataset(namespace="file", name="/home/in", rows=6, files=2, bytes=20),
        Dataset(namespace="file", name="/elsewhere", rows=3, files=1, bytes=10),
        Dataset(namespace="s3://bucket", name="d", rows=3, files=1, bytes=10),
    ]


def test_a_table_is_named_with_its_server(connection, monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)
    host, port, database = connection.server()
    [found] = TableSpout("shop.orders", key="id").datasets([])
    assert found == table_dataset(host, port, database, "shop", "orders", rows=0)
    assert table_dataset("/run/postgresql", 5432, "db", "public", "t", rows=1) == Dataset(
        namespace="postgres://localhost:5432", name="db.public.t", rows=1
    )
    assert table_dataset("::1", 5432, "db", "public", "t", rows=1).namespace == (
        "postgres://[::1]:5432"
    )
