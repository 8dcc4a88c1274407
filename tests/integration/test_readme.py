"""The code of the pages for beginners is code: it runs."""

from __future__ import annotations

import re
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from reliability import FileSpout, Topology
from reliability.core.spout import Interval
from reliability.deployment.topologies import load_topology
from tests.support.fix_postgres import ROOT, rows

README = "README.md"
WRITE_A_PIPELINE = "docs/write-a-pipeline.md"
BLOCKS = {
    page: re.findall(
        r"```python\n# (\S+\.py)[^\n]*\n(.*?)```", (ROOT / page).read_text(), re.DOTALL
    )
    for page in (README, WRITE_A_PIPELINE)
}
NEW_YEAR = date(2026, 1, 1)
DAY = Interval(datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc))


def test_the_pages_have_what_these_tests_are_about():
    assert {page: [name for name, _ in blocks] for page, blocks in BLOCKS.items()} == {
        README: [
            "spark_apps/shop_revenue.py",
            "dags/shop_revenue.py",
            "make_orders.py",
            "test_shop_revenue.py",
        ],
        WRITE_A_PIPELINE: ["spark_apps/shop_revenue.py"],
    }


@pytest.fixture
def write_the_page(tmp_path, monkeypatch):
    """Have a page's own pipeline as a module, and the README's file in a folder of its own."""

    def write(page: str) -> Topology:
        module = ModuleType("spark_apps.shop_revenue")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        code = dict(BLOCKS[page])["spark_apps/shop_revenue.py"]
        exec(compile(code, page, "exec"), module.__dict__)
        exec(compile(dict(BLOCKS[README])["make_orders.py"], README, "exec"), {})
        return load_topology(module.__name__, "shop_revenue")

    return write


def test_the_pipeline_of_write_a_pipeline_runs(write_the_page, pipeline, connection):
    topology = write_the_page(WRITE_A_PIPELINE)
    assert isinstance(topology.spout, FileSpout)
    pipeline(topology).take_in(DAY)
    assert rows(
        connection,
        "SELECT customer, orders, revenue, last_order FROM revenue_by_customer ORDER BY 1",
    ) == [("ann", 2, Decimal("2.20"), NEW_YEAR), ("bob", 1, Decimal("1.10"), NEW_YEAR)]
    assert rows(connection, "SELECT day, revenue FROM revenue_by_day") == [
        (NEW_YEAR, Decimal("3.30"))
    ]


def test_the_readmes_test_passes(write_the_page, kit):
    write_the_page(README)
    test: dict[str, Any] = {}
    exec(compile(dict(BLOCKS[README])["test_shop_revenue.py"], README, "exec"), test)
    function = test["test_each_order_counts_once"]
    assert [mark.name for mark in function.pytestmark] == ["faultpoints"]
    function(kit)
    customers = [
        (r["customer"], r["orders"], r["revenue"]) for r in kit.rows("revenue_by_customer")
    ]
    assert sorted(customers) == [("ann", 2, Decimal("2.20")), ("bob", 1, Decimal("1.10"))]
    days = [(r["day"], r["orders"], r["revenue"]) for r in kit.rows("revenue_by_day")]
    assert days == [(NEW_YEAR, 3, Decimal("3.30"))]


def test_the_readmes_dag_is_valid_python():
    compile(dict(BLOCKS[README])["dags/shop_revenue.py"], README, "exec")
