"""What people check their DAG files with; the project's own pass it."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

from reliability.testing import DagsBroken, check_dags

ROOT = Path(__file__).resolve().parents[2]
DAG = """
    from datetime import datetime, timezone
    {imports}
    from reliability import Count, MemorySpout, State, Topology
    from reliability_airflow import topology_dag

    def process(batch):
        return {{"orders": batch}}

    topology = Topology(
        "{name}",
        spout=MemorySpout({{"word": "string"}}, [["a"]], take=1),
        process=process,
        states=[State("orders", values={{"n": Count()}})],
        module="own_{name}",
    )
    dag = topology_dag(
        topology, schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
        conn_id="{conn_id}", ledger_conn_id={ledger!r},
    )
"""


@pytest.fixture
def write(airflow_home, tmp_path):
    """Write a DAG file with a topology, into a folder that is on no path."""

    def write(name, *, imports="", conn_id="spark_default", ledger=None):
        text = DAG.format(name=name, imports=imports, conn_id=conn_id, ledger=ledger)
        (tmp_path / f"own_{name}.py").write_text(textwrap.dedent(text))

    return write


def test_the_projects_own_dags_pass(airflow_home):
    assert "cdnow_revenue" in check_dags(ROOT / "dags", connections=False)


def test_each_thing_that_is_wrong_is_told(write, tmp_path, monkeypatch):
    """A topology of another ledger has a table of its own, and Airflow's examples are no DAGs."""
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "True")
    write("one", imports="import pandas", conn_id="no_such_spark")
    (tmp_path / "beside.py").touch()
    no_examples = "assert os.environ['AIRFLOW__CORE__LOAD_EXAMPLES'] == 'False'"
    write("two", imports=f"import beside, os; {no_examples}")
    write("elsewhere", conn_id="no_such_spark", ledger="other")
    write("slow", imports="sum(range(3 * 10**7)); print('1', end='')")
    write("ends", imports="import os; __name__ == '<run_path>' and os._exit(1)")
    (tmp_path / "broken.py").write_text("from airflow.sdk import DAG\nimport no_such_module\n")
    with pytest.raises(DagsBroken) as caught:
        check_dags(tmp_path, most_seconds=0.3)
    told = "\n".join(caught.value.broken)
    for sentence in (
        "broken.py cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        "own_one.py imports numpy, pandas",
        "own_ends.py cannot be imported by itself: it ends the process",
        "table public.orders is written by ends and one and slow and two",
        "connection no_such_spark, needed by elsewhere, one, is not there or cannot be read",
        "connection spark_default, needed by ends, slow, two, is not there or cannot be read",
    ):
        assert sentence in told, told
    assert re.search(r"own_slow\.py takes \d+\.\d s to import, more than 0\.3 s", told)
    assert "own_two.py" not in told
    assert str(tmp_path) not in sys.path


def test_a_folder_without_dags_is_not_right(airflow_home, tmp_path):
    with pytest.raises(DagsBroken, match="there is no DAG"):
        check_dags(tmp_path)
