"""Several DAGs emit one topology, and their runs have the same ids."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability.core.schedule import Schedule
from reliability.transaction.correct.drop import what_would_go
from reliability.transaction.correct.resume_runs import undone_runs
from reliability.transaction.emit.requests import Run, close
from reliability.transaction.inspect.intervals import intervals_without_commit
from reliability.transaction.topology.read_standing import find_standing
from tests.support.fix_page import airflow_with_page
from tests.support.fix_pipeline import month, pipeline_of, shop, write_parquet
from tests.support.fix_postgres import execute

pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx`")
RUN = "scheduled__1997"
ROWS = [{"customer": 1, "day": date(1997, 1, 1), "price": Decimal("1.10")}]


@pytest.fixture
def pipelines(connection, tmp_path):
    """DAG north has emitted January, and DAG south February; nothing has committed."""
    made = {}
    for number, dag_id in enumerate(("north", "south"), start=1):
        write_parquet(tmp_path / f"1997-0{number}" / "a.parquet", ROWS)
        made[dag_id] = pipeline_of(shop(tmp_path), connection)
        made[dag_id].run = Run(dag_id=dag_id, run_id=RUN)
        assert made[dag_id].emit(month(1997, number)) == [number]
    return made


def test_what_is_undone_leads_to_the_dag_that_has_emitted_it(pipelines, connection):
    # reconcile asks for these DAGs: one with the topology's name may be another team's
    dags = [row["dag_id"] for row in connection.all("dags_of_topology", topology=None)]
    assert dags == ["north", "south"]
    for txid, dag_id in enumerate(dags, start=1):  # both runs end without their txids
        close(connection, "shop", txid, Run(dag_id=dag_id, run_id=RUN), "marked by hand")
    for other in ("('cli', 'ann')", "('north', 'manual')"):  # which have asked for it, too
        copied = "topology, txid, number, kind, granted_after, status, ended_at, reason"
        execute(
            connection,
            f"INSERT INTO reliability.request (dag_id, run_id, {copied}) SELECT {other[1:-1]},"
            f" {copied} FROM reliability.request WHERE txid = 1 AND run_id = '{RUN}'",
        )
    with connection.transaction() as tx:
        undone = [(run.dag_id, run.run_id, run.txids) for run in undone_runs(tx, "shop")]
        lacking = [
            (report.dag_id, report.txids) for report in intervals_without_commit(tx, "shop").reports
        ]
        standing = find_standing(tx, "shop")
    assert standing is not None
    blocked = standing.blocked
    assert blocked is not None
    assert undone == [("north", RUN, (1,)), ("south", RUN, (2,))]
    assert lacking == [("north", (1,)), ("south", (2,))]
    assert (blocked.dag_id, blocked.run_id) == ("north", RUN)
    assert what_would_go(connection, "shop").dags == ("north", "south")


def test_a_commit_of_one_dag_is_none_of_the_others(pipelines, connection):
    pipelines["north"].transact(1)
    pipelines["south"].transact(2)
    done = "SELECT dag_id, txid FROM reliability.request WHERE status = 'SATISFIED' ORDER BY txid"
    assert [(r["dag_id"], r["txid"]) for r in connection.all(SQL(done))] == [
        ("north", 1),
        ("south", 2),
    ]


def test_a_dag_for_runs_by_hand_does_not_take_the_schedule_away(pipelines, connection):
    def record(dag_id, cron, not_evaluated):
        schedule = Schedule(cron=cron, time_zone=cron and "UTC", not_evaluated=not_evaluated,
                            catchup=True)  # fmt: skip
        pipelines[dag_id].runner.emit(month(1997, 1), pipelines[dag_id].who("emit"),
                                      max_batches=9, schedule=schedule)  # fmt: skip
        return connection.one("schedule", topology="shop")["dag_id"]

    assert record("north", "@daily", None) == "north"
    assert record("south", None, "it is run by hand") == "north"
    assert record("south", "@weekly", None) == "south"


# --- the page ------------------------------------------------------------------------------------


@pytest.fixture
def client(airflow_home, rights):
    from fastapi.testclient import TestClient

    with airflow_with_page(rights) as airflow:
        yield TestClient(airflow, follow_redirects=False, headers={"Accept": "text/html"})


def test_the_page_of_a_dag_is_that_of_its_topology_and_of_a_run_what_it_has_asked_for(
    client, pipelines, rights
):
    for dag_id, txid in (("north", 1), ("south", 2)):
        answer = client.get(f"/reliability/of-dag/{dag_id}")
        assert answer.headers["location"] == "/reliability/dags/shop"
        place = f"/reliability/of-dag/{dag_id}/runs?run_id={RUN}&map_index="
        source = client.get(place, follow_redirects=True).text
        assert f"/dags/shop/txids/{txid}" in source
        assert f"/dags/shop/txids/{3 - txid}" not in source
        assert f"/dags/{dag_id}/runs/{RUN}" in source
        mapped = client.get(place + "0", follow_redirects=True)
        assert str(mapped.url).endswith(f"/dags/shop/txids/{txid}")
        assert f"/dags/{dag_id}/runs/{RUN}" in mapped.text
    answer = client.get("/reliability/of-dag/shop", follow_redirects=True)
    assert answer.status_code == 200  # a topology of that name, though no DAG of that name emits it
    # who may read one DAG sees the topology
    rights.readable = {"south"}
    assert "shop" in client.get("/reliability/").text
    rights.readable = {"shop", "other"}
    assert "1 more topology has no DAG that you may read" in client.get("/reliability/").text


def test_reading_needs_one_of_the_dags_and_changing_all_of_them(
    pipelines, airflow_home, monkeypatch
):
    from types import SimpleNamespace

    from fastapi import HTTPException

    from reliability_airflow.page import access

    def only(mine):
        monkeypatch.setattr(access, "_may", lambda user, method, dag_id: dag_id in mine)

    request = SimpleNamespace(path_params={"topology": "shop"})
    only({"north"})
    access.may_read.dependency(request, None)
    with pytest.raises(HTTPException):
        access.may_act.dependency(request, None)
    only({"north", "south"})
    access.may_act.dependency(request, None)
    only({"shop"})
    with pytest.raises(HTTPException):
        access.may_read.dependency(request, None)
