"""The README's code is code: what it quotes stands in the files, and its own pipeline runs."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from decimal import Decimal
from types import ModuleType

import pytest

from reliability import FileSpout
from reliability.core.spout import Interval
from reliability.topologies import load_topology
from tests.support.fix_postgres import ROOT, rows

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n# (\S+\.py)[^\n]*\n(.*?)```", README, re.DOTALL)
QUOTED = [(name, code) for name, code in BLOCKS if (ROOT / name).exists()]


def test_the_readme_has_what_these_tests_are_about():
    assert [name for name, _ in BLOCKS] == [
        "spark_apps/global_count.py",
        "dags/global_count.py",
        "spark_apps/shop_revenue.py",
        "dags/shop_revenue.py",
        "make_orders.py",
    ]
    assert len(QUOTED) == 2


@pytest.mark.parametrize(("name", "code"), QUOTED)
def test_what_is_quoted_stands_in_the_file(name, code):
    assert code.strip() in (ROOT / name).read_text()


@pytest.fixture
def shop_revenue():
    """The README's own pipeline, as a module of its name."""
    code = dict(BLOCKS)["spark_apps/shop_revenue.py"]
    module = ModuleType("spark_apps.shop_revenue")
    sys.modules[module.__name__] = module
    exec(compile(code, "README.md", "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_the_readmes_own_pipeline_runs(shop_revenue, pipeline, connection, tmp_path, monkeypatch):
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    exec(compile(dict(BLOCKS)["make_orders.py"], "README.md", "exec"), {})
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    topology = load_topology("spark_apps.shop_revenue", "shop_revenue")
    assert isinstance(topology.spout, FileSpout)
    shop = pipeline(topology)
    day = Interval(
        datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc)
    )
    assert shop.emit(day) == [1]
    shop.transact(1)
    assert rows(
        connection,
        "SELECT customer, orders, revenue, last_order FROM revenue_by_customer ORDER BY 1",
    ) == [("ann", 2, Decimal("1.10"), noon), ("bob", 1, Decimal("4.40"), noon)]
    assert rows(connection, "SELECT day, revenue FROM revenue_by_day") == [
        (noon.date(), Decimal("5.50"))
    ]


def test_the_readmes_dag_is_valid_python():
    compile(dict(BLOCKS)["dags/shop_revenue.py"], "README.md", "exec")
