"""The examples of the pages about sources are code: it runs."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

import reliability
from reliability.deployment.lazy import F
from reliability.testing.allocated import Txids
from tests.support.fix_postgres import ROOT
from tests.support.lake import record, table_of

PAGES = ("delta", "iceberg", "kafka", "tables")


def examples_of(page: str) -> list[str]:
    text = (ROOT / "docs" / "sources" / f"{page}.md").read_text()
    return [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def run(code: str, **names: object) -> dict[str, Any]:
    own = {**vars(reliability), "F": F, "json": json, **names}
    exec(compile(code, "a page", "exec"), own)
    return own


@pytest.mark.parametrize("page", PAGES)
def test_the_spout_with_which_a_page_begins_is_valid(page):
    first = examples_of(page)[0]
    names = {"order_of": run(examples_of(page)[-1])["order_of"]} if page == "kafka" else {}
    assert isinstance(run(f"spout = {first}", **names)["spout"], reliability.spouts.Spout)


def test_the_decode_of_kafka_gives_the_columns_of_its_spout():
    order_of = run(examples_of("kafka")[-1])["order_of"]
    assert order_of(b'{"id": 1, "price": 2.5, "more": 0}') == {"id": 1, "price": 2.5}


def test_the_process_function_of_delta_counts_deletes_negatively(tmp_path, spark):
    body = textwrap.indent(examples_of("delta")[-1], "    ")
    process = run(f"def process(batch):\n{body}")["process"]
    path = str(tmp_path / "orders")
    write_deltalake(path, table_of([(1, "Mon", 5), (2, "Tue", 7), (2, "Tue", 9)]))
    table = DeltaTable(path)
    table.update(predicate="price = 5", updates={"price": "6"})
    table.delete("price = 7")
    txids, spout = Txids(), reliability.DeltaSpout(path, changes="feed", since=0)
    record(spout, txids)
    frames = [process(spout.frame(spark, meta))["revenue"] for meta in txids.batches.values()]
    assert sum(frame.agg(F.sum("price")).collect()[0][0] for frame in frames) == 15
