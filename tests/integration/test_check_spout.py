"""`check_spout` passes spouts that keep the contract, and says in words what others break."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from reliability import FileSpout, TableSpout
from reliability.core.spout import NoItems
from reliability.deployment.lazy import np, pa, pq
from reliability.spouts import Fold, RefreezeNotPossible, SourceChanged, fold_rows
from reliability.spouts.tuple_ids import tuple_ids
from reliability.testing import Source, SpoutBroken, check_spout
from reliability.testing.allocated import Txids
from tests.support.fix_postgres import ROOT, rows

PAGE = (ROOT / "docs" / "write-a-spout.md").read_text()
BLOCKS = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
SAID = re.findall(r"^- ((?:verify|frame): after .*)$", PAGE, re.MULTILINE)
NO_SPARK: Any = object()
ALL = [
    "an import as light as a DAG file's", "a source as it is found",
    "a crash between plan and record", "emission", "a second emission", "attempts", "late items",
    "replays", "excluded items", "an empty batch", "all rows", "a change and a refreeze",
    "a loss and a refreeze",
]  # fmt: skip


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page's two modules, as files that can be imported."""
    for name, code in BLOCKS.items():
        (tmp_path / name).write_text(code)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return importlib.import_module("test_sqlite_spout")


@pytest.fixture
def sales(page, tmp_path):
    folder = tmp_path / "sales"
    folder.mkdir()
    return page.Sales(folder)


def test_the_spout_of_the_page_has_40_lines_and_keeps_the_contract(page, sales, spark):
    spout = BLOCKS["sqlite_spout.py"].split("@source_item")[1]
    assert len([line for line in spout.splitlines() if line.strip()]) <= 40
    assert check_spout(page.SqliteSpout(str(sales.folder)), sales, spark=spark) == ALL


class Files(Source):
    """A folder of Parquet files with some numbers each."""

    def __init__(self, folder):
        self.folder, self.numbers = folder, count()

    def write(self, number, values):
        path = self.folder / f"{number:03}.parquet"
        pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), path)

    def add(self):
        self.write(number := next(self.numbers), [number, 5, 5])

    def change(self):
        self.write(0, [7])

    def lose(self):
        (self.folder / "001.parquet").unlink()

    def rows(self):
        return pq.read_table(self.folder).to_pylist()


@pytest.mark.slow
def test_file_spout_keeps_the_contract(tmp_path, spark):
    spout = FileSpout(f"{tmp_path}/*.parquet", schema="n bigint", opaque=True)
    pairs = replace(spout, max_files_per_batch=2)
    assert len(check_spout(spout, Files(tmp_path), spark=spark, others=[pairs])) == len(ALL) + 2


class Keys(Source):
    """A table with an ascending key."""

    def __init__(self, connection):
        self.connection = connection
        self.run("CREATE TABLE public.sales (id bigserial PRIMARY KEY, n int)")

    def run(self, statement):
        with self.connection.transaction() as tx:
            tx.cursor.execute(statement)

    def add(self):
        self.run("INSERT INTO public.sales (n) VALUES (1), (1), (2)")

    def lose(self):
        self.run("DELETE FROM public.sales WHERE id = 2")

    def rows(self):
        found = rows(self.connection, "SELECT id, n FROM public.sales")
        return [{"id": key, "n": n} for key, n in found]


@pytest.mark.slow  # the eight batches of test_updated_rows, and test_source_tables, run each time
def test_table_spout_keeps_the_contract(connection, spark):
    spout = TableSpout("public.sales", key="id", max_rows_per_batch=4)
    more = replace(spout, max_rows_per_batch=100)
    tried = check_spout(spout, Keys(connection), spark=spark, others=[more])
    assert "a loss and a refreeze" in tried


# --- spouts that break it ------------------------------------------------------------------------


class Frame:
    """What `check_spout` asks of a DataFrame, without Spark."""

    def __init__(self, rows: list[Any], columns: Sequence[str] = ("id", "price")):
        self.rows = rows
        self.dtypes = [(name, "bigint") for name in (*columns, "_x", "_n")]

    def select(self, *names):
        from pyspark.sql import Row

        return Frame([Row(**{name: row[name] for name in names}) for row in self.rows])

    def collect(self):
        return self.rows


def rows_of(spout, meta):
    """Return what the page's `frame` returns."""
    rows = []
    for ordinal, item in enumerate(meta.items):
        found = spout.query(item.name, "id, price")
        ids = tuple_ids(ordinal, np.arange(len(found), dtype=np.uint64)).astype(np.int64)
        with_ids = zip(found, ids, strict=True)
        rows += [{"id": i, "price": p, "_x": int(x), "_n": 1} for (i, p), x in with_ids]
    return rows


def in_python(spout, spark, meta):
    return Frame(rows_of(spout, meta))


def lists_all_again(spout, interval, allocated):
    return spout.as_on_the_page.plan(interval, NoItems())


def in_any_order(spout, interval, allocated):
    spout.calls.append("plan")
    items = spout.as_on_the_page.plan(interval, allocated)
    return items[::-1] if len(spout.calls) % 2 == 0 else items


def one_name_for_all(spout, interval, allocated):
    return [replace(i, name="001.sqlite") for i in spout.as_on_the_page.plan(interval, allocated)]


def notices_nothing_late(spout, interval, allocated):
    new = spout.as_on_the_page.plan(interval, allocated)
    return [] if [item.name for item in new] == ["004.sqlite"] else new


def reads_the_wrong_folder(spout, interval, allocated):
    raise FileNotFoundError("there is no such folder")


def keeps_a_set(spout, interval, allocated):
    return [replace(i, sha256={1}) for i in spout.as_on_the_page.plan(interval, allocated)]


def loses_the_last(spout, items):
    return [(item,) for item in items[:-1]]


def doubles_the_first(spout, items):
    return [(item,) for item in (*items[:1], *items)]


def counts_no_more_than_one(spout, items):
    return Fold.of(fold_rows(ordinal, 1) for ordinal, _ in enumerate(items))


def numbers_from_one(spout, items):
    return Fold.of(fold_rows(ordinal, item.rows, first=1) for ordinal, item in enumerate(items))


def sees_the_number_alone(spout, meta):
    if len(spout.refresh(meta)) != len(meta.items):
        raise SourceChanged("a file is gone")


def sees_what_is_not(spout, meta):
    raise SourceChanged("it looks different today")


def loses_a_row(spout, spark, meta):
    return Frame(rows_of(spout, meta)[1:])


def gives_all_one_id(spout, spark, meta):
    return Frame([{**row, "_x": 1} for row in rows_of(spout, meta)])


def counts_in_text(spout, spark, meta):
    frame = Frame(rows_of(spout, meta))
    frame.dtypes[-1] = ("_n", "string")
    return frame


def has_no_columns_if_empty(spout, spark, meta):
    return Frame(rows_of(spout, meta), ("id", "price") if meta.items else ())


def is_random(spout, spark, meta):
    spout.calls.append("frame")
    return Frame([{**row, "price": len(spout.calls)} for row in rows_of(spout, meta)])


def keeps_what_is_gone(spout, meta):
    return list(meta.items)


def has_nothing_yet(spout, *arguments):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("method", "broken", "sentences"),
    [
        ("plan", lists_all_again, ["a second emission lists again what txids have: sqlite:001"]),
        ("plan", in_any_order, ["two calls in a row list other items: sqlite:003"]),
        ("plan", one_name_for_all, ["several items have one identity: ['sqlite:001.sqlite']"]),
        ("plan", notices_nothing_late, ["it does not list what was added after an emission"]),
        ("plan", reads_the_wrong_folder, ["plan: it raises FileNotFoundError: there is no such"]),
        ("plan", keeps_a_set, ["the fields of an item: it raises TypeError"]),
        ("cut", loses_the_last, ["cut: ['sqlite:003.sqlite'] get lost"]),
        ("cut", doubles_the_first, ["cut: sqlite:001.sqlite is there twice"]),
        ("count", counts_no_more_than_one, ["it counts 1 rows in sqlite:001.sqlite, whose items"]),
        ("count", numbers_from_one, ["txid 1 has other tuple ids than count"]),
        ("verify", sees_the_number_alone, SAID),
        ("verify", sees_what_is_not, ["txid 1 was not changed, and it says: it looks different"]),
        ("frame", loses_a_row, ["txid 1 has 1 rows, and count says 2"]),
        ("frame", gives_all_one_id, ["txid 1 has rows with the same tuple id"]),
        ("frame", counts_in_text, ["the columns _x and _n are not both there as bigint"]),
        ("frame", has_no_columns_if_empty, ["frame without an excluded item: txid 1 has the"]),
        ("frame", is_random, ["txid 1 reads other rows the second time", "are in no batch"]),
        ("refresh", keeps_what_is_gone, ["frame: txid 2: it raises OperationalError: no such"]),
        ("frame", has_nothing_yet, ["frame: txid 1: it raises NotImplementedError"]),
        ("is_ready", has_nothing_yet, ["is_ready: it raises NotImplementedError"]),
        ("is_ready", lambda *_: None, ["is_ready: it returns neither True nor False"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_spout_breaks_is_said_in_words(page, sales, method, broken, sentences):
    on_the_page = page.SqliteSpout(str(sales.folder))
    own = {"frame": in_python, method: broken, "calls": [], "as_on_the_page": on_the_page}
    spout = type("Broken", (page.SqliteSpout,), own)(str(sales.folder))
    with pytest.raises(SpoutBroken) as found:
        check_spout(spout, sales, spark=NO_SPARK)
    for sentence in sentences:
        assert sentence in str(found.value)


def test_a_refreeze_that_is_not_possible_hides_nothing(page, sales):
    """`verify` looks at the first file alone, which stays changed when the second is lost."""

    def verify(spout, meta):
        if any(item.name == "001.sqlite" and spout.read(item.name) != item for item in meta.items):
            raise SourceChanged("the first file has changed")

    def refresh(spout, meta):
        raise RefreezeNotPossible("txids share it")

    def change(sales):
        page.Sales.change(sales)
        (sales.folder / "003.sqlite").write_bytes((sales.folder / "001.sqlite").read_bytes())

    source = type("Two", (page.Sales,), {"change": change})(sales.folder)
    own = {"frame": in_python, "verify": verify, "refresh": refresh}
    spout = type("Broken", (page.SqliteSpout,), own)(str(sales.folder))
    with pytest.raises(SpoutBroken) as found:
        check_spout(spout, source, spark=NO_SPARK)
    said = {SAID[0].replace("change", "lose"), SAID[1].replace("txid 1", "txid 3")}
    assert said <= {*found.value.broken}


def test_a_heavy_import_is_said(page, sales, tmp_path):
    code = "import pandas\n" + BLOCKS["sqlite_spout.py"]
    (tmp_path / "heavy_spout.py").write_text(code)
    spout = importlib.import_module("heavy_spout").SqliteSpout
    broken = type("Broken", (spout,), {"__module__": "heavy_spout"})("")
    with pytest.raises(SpoutBroken, match=r"imports \['numpy', 'pandas'.*in the methods"):
        check_spout(broken, sales, spark=NO_SPARK)


def test_what_a_source_cannot_do_is_not_tried(page, sales):
    less = {"change": Source.change, "lose": Source.lose, "rows": Source.rows}
    steady = type("Steady", (page.Sales,), less)(sales.folder)
    spout = type("InPython", (page.SqliteSpout,), {"frame": in_python})(str(sales.folder))
    assert check_spout(spout, steady, spark=NO_SPARK) == ALL[:-3]


def test_other_limits_and_opaque_batches_are_tried(page, sales):
    def with_nan(rows):  # NaN is the same when it is read again, also in a struct
        return [{**row, "price": (row["price"], float("nan"))} for row in rows]

    sales.rows = lambda: with_nan(page.Sales.rows(sales))
    own = {"frame": lambda self, _, meta: Frame(with_nan(rows_of(self, meta))), "opaque": True}
    spout = type("Opaque", (page.SqliteSpout,), own)(str(sales.folder))
    pairs = {**own, "cut": lambda self, items: [items[n : n + 2] for n in range(0, len(items), 2)]}
    other = type("Pairs", (page.SqliteSpout,), pairs)(str(sales.folder))
    tried = check_spout(spout, sales, spark=NO_SPARK, others=[other])
    assert len(tried) == len(ALL) + 2
    assert "opaque batches" in tried


def test_an_opaque_spout_that_ignores_uncommitted_batches_is_found(page, sales):
    def plan(spout, interval, allocated):
        taken = allocated if isinstance(allocated, Txids) else NoItems()
        return page.SqliteSpout.plan(spout, interval, taken)

    own = {"frame": in_python, "opaque": True, "plan": plan}
    spout = type("Opaque", (page.SqliteSpout,), own)(str(sales.folder))
    with pytest.raises(SpoutBroken, match="plan beside uncommitted batches"):
        check_spout(spout, sales, spark=NO_SPARK)
