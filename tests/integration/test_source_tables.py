"""Tables as sources: ids that tell any two keys apart, whatever names the user has (V2, V6)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import psycopg2
import pytest
from psycopg2.sql import SQL, Identifier, Literal

from reliability import Count, State, Sum, TableSpout, Topology, Upsert
from reliability.core.errors import InvalidDefinition, SourceChanged, SourceMoved
from reliability.ledger.queries import queries, sql_folder
from reliability.spouts.table import TableKeys
from reliability.transaction.emit.source_items import LedgerItems
from tests.support.batches import batches_of, fold_of_rows
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import ROOT, rows


def emitter(connection, spout, name="tables"):
    totals = State("totals", values={"n": Count(), "total": Sum("v")}, table=f"public.{name}")
    topology = Topology(name, spout, [totals], lambda b: {"totals": b}, max_spout_pending=3)
    return pipeline_of(topology, connection)


def keys_of(batches):
    return [item.keys for batch in batches for item in batch.items]


def totals(connection, name="tables"):
    return rows(connection, f"SELECT n, total FROM {name}")


# --- ids -----------------------------------------------------------------------------------------

SHAPES = {
    "the two halves changed places": "SELECT 4::bigint << 32 | 1 UNION SELECT 1::bigint << 32 | 4",
    "a key and one with another upper half": "SELECT 4 UNION SELECT 4294967301",
    "a tenant and a number": "SELECT t::bigint << 32 | n FROM generate_series(0, 99) AS t,"
    " generate_series(0, 1023) AS n",
    "a number and its complement": "SELECT n FROM generate_series(-5000, 4999) AS n",
    "every bit alone": "SELECT 1::bigint << n FROM generate_series(0, 63) AS n",
    "one after the other": "SELECT n FROM generate_series(1, 100000) AS n",
}


def ids_of(database, keys):
    tuple_id = SQL(queries()["tuple_id"]).format(key=Identifier("k"))
    database.execute(
        SQL("SELECT count(DISTINCT {0}), count(*) FROM ({1}) AS source(k)").format(
            tuple_id, SQL(keys)
        )
    )
    return database.fetchone()


def test_no_two_keys_of_these_shapes_have_the_same_id(database):
    """V2, E6: an id of 32 bits lets a loss and a copy cancel each other."""
    found = {shape: ids_of(database, keys) for shape, keys in SHAPES.items()}
    assert {shape: keys - distinct for shape, (distinct, keys) in found.items()} == dict.fromkeys(
        SHAPES, 0
    )
    # 4294967301 is there twice in place of 4
    database.execute("CREATE TABLE public.t (k bigint PRIMARY KEY, v bigint DEFAULT 1)")
    database.execute("INSERT INTO t VALUES (4), (4294967301), (8589934598)")
    table = TableSpout("t", key="k").source_table
    database.execute("SELECT count(DISTINCT hashint8extended(k, 42)) FROM t WHERE k < 5000000000")
    assert database.fetchone() == (1,)
    assert table.fold("{[4294967301,4294967302)}").xor != table.fold("{[4,5)}").xor


# --- names ---------------------------------------------------------------------------------------

SOURCE_SQL = sql_folder() / "queries" / "source.sql"
# What the statements call their tables and columns: AS one, AS one(other, …); and what they did.
ALIASES = {
    name
    for found in re.findall(r"\bAS ([a-z_]+)(?:\(([a-z_, ]+)\))?", SOURCE_SQL.read_text())
    for name in re.findall(r"\w+", ",".join(found))
} | {"r", "s", "p", "n", "id", "island", "first", "last", "present", "taken", "new"}
ODD = [
    "50%", "%s", "%(keys)s", "%%", 'say "hi"', '"', "a`b", "`", "a.b", "a b", " ", "{key}", "{}",
    "MiXed", "ÜBER€", "select", "from", "user", "it's", "back\\slash", "line\nfeed", "x" * 63,
    "é" * 31, "--", "/*", ";",
]  # fmt: skip
NAMES = sorted({*ALIASES, *ODD})


def create(database, table, types, schema="public"):
    columns = [SQL("{} {}").format(Identifier(name), SQL(type_)) for name, type_ in types.items()]
    database.execute(
        SQL("CREATE TABLE {} ({})").format(Identifier(schema, table), SQL(", ").join(columns))
    )


def insert(database, table, *values, schema="public"):
    for row in values:
        database.execute(
            SQL("INSERT INTO {} VALUES ({})").format(
                Identifier(schema, table), SQL(", ").join(map(Literal, row))
            )
        )


def looked_at(spout):
    """All that is asked of a table, with the keys that are told."""
    metas = batches_of(spout)
    for meta in metas:
        spout.verify(meta)
    assert [spout.refresh(meta) for meta in metas] == [list(meta.items) for meta in metas]
    return keys_of(metas), [meta.emitted.count for meta in metas]


@pytest.mark.slow
def test_a_key_of_any_name_is_only_the_users(database):
    """None of them is taken for a name of the statements, and none breaks them."""
    create(database, "t", {"k": "bigint PRIMARY KEY"})
    insert(database, "t", *([n] for n in (1, 2, 4, 5, 6)))
    found, last = {}, "k"
    for name in NAMES:
        rename = SQL("ALTER TABLE t RENAME {} TO {}")
        database.execute(rename.format(Identifier(last), Identifier(name)))
        found[name] = looked_at(TableSpout("t", key=name, max_rows_per_batch=3))
        last = name
    assert found == dict.fromkeys(NAMES, (["{[1,3),[4,5)}", "{[5,7)}"], [3, 2]))


def test_a_table_and_a_schema_of_any_name_are_only_the_users(database):
    tables, schemas = {}, {}
    for name in ODD:
        create(database, name, {"r": "bigint PRIMARY KEY", "s": "bigint"})
        insert(database, name, (1, 1), (3, 3))
        tables[name] = looked_at(TableSpout(f"public.{name}", key="r"))
    assert tables == dict.fromkeys(ODD, (["{[1,2),[3,4)}"], [2]))
    names = [name for name in ODD if "." not in name]
    for name in names:
        database.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
        create(database, "t", {"r": "bigint PRIMARY KEY"}, schema=name)
        insert(database, "t", [7], schema=name)
        schemas[name] = looked_at(TableSpout(f"{name}.t", key="r"))
    assert schemas == dict.fromkeys(names, (["{[7,8)}"], [1]))


def test_spark_reads_columns_of_any_name(database, spark):
    """Each has its own value, and so has a range that is called as the statements' was."""
    types = {"key": "bigint PRIMARY KEY", "r": "int8range"}
    types |= {name: "text" for name in NAMES if name not in types}
    create(database, "t", types)
    wanted = {
        n: (n, f"[{n},{n + 3})", *(f"{name} {n}" for name in list(types)[2:])) for n in (1, 2, 5)
    }
    insert(database, "t", *wanted.values())
    spout = TableSpout("t", key="key")
    [meta] = batches_of(spout)
    frame = spout.frame(spark, meta)
    assert frame.columns == [*types, "_x", "_n"]
    read = frame.collect()
    assert {row[0]: tuple(row)[:-2] for row in read} == wanted
    assert fold_of_rows(read) == meta.emitted


def test_rows_beside_a_column_called_r_are_emitted(database, connection):
    """The statements called a range of keys r: of a column r that is a range, they read that."""
    create(database, "t", {"r": "int8range", "k": "bigint PRIMARY KEY", "v": "bigint"})
    insert(database, "t", ("[1,2)", 1, 10), ("[0,9)", 2, 20), (None, 3, 30))
    for name in ("frozen", "opaque"):
        spout = TableSpout("t", key="k", columns=["v"], opaque=name == "opaque")
        first = emitter(connection, spout, name)
        assert first.emit(None) == [1], name
        first.transact(1)
        assert totals(connection, name) == [(3, 60)]


def test_a_lag_column_of_any_name_is_only_the_users(database):
    names = [*ODD, "source", "found"]
    types = {"k": "bigint PRIMARY KEY"} | dict.fromkeys(names, "timestamptz NOT NULL")
    create(database, "t", types)
    for key, age in ((1, "1 hour"), (2, "0")):
        ages = SQL(", ").join([SQL("now() - %s::interval")] * len(names))
        database.execute(
            SQL("INSERT INTO t VALUES (%s, {})").format(ages), [key, *[age] * len(names)]
        )
    found = {
        name: keys_of(batches_of(TableSpout("t", key="k", lag_seconds=600, lag_column=name)))
        for name in names
    }
    assert found == {name: ["{[1,2)}"] for name in names}


# --- what is refused, before anything is allocated -----------------------------------------------

KINDS = """
CREATE TABLE public.base (k bigint PRIMARY KEY, v bigint, at timestamptz);
INSERT INTO base VALUES (1, 1), (2, 2);
CREATE VIEW public.pairs AS SELECT k, v FROM base UNION ALL SELECT nullif(k, 2), v FROM base;
CREATE MATERIALIZED VIEW public.stored AS SELECT * FROM base;
CREATE UNIQUE INDEX ON stored (k);
CREATE SEQUENCE public.numbers;
CREATE TYPE public.pair AS (k bigint, v bigint);
CREATE TABLE public.parent (k bigint PRIMARY KEY, v bigint);
CREATE TABLE public.child (PRIMARY KEY (k)) INHERITS (parent);
CREATE TABLE public.loose (k bigint, v bigint, UNIQUE (k, v)) PARTITION BY LIST (v);
CREATE TABLE public.ours (k bigint PRIMARY KEY, _x bigint, v bigint);
CREATE TABLE public.loud (k bigint PRIMARY KEY, "_N" bigint, v bigint);
CREATE TABLE public.twice (k bigint PRIMARY KEY, v bigint, "V" bigint);
CREATE DOMAIN public.number AS bigint;
CREATE TABLE public.named (k number PRIMARY KEY);
CREATE TABLE public.unkeyed (k bigint NOT NULL);
CREATE TABLE public.partly (k bigint NOT NULL);
CREATE UNIQUE INDEX ON partly (k) WHERE k > 3;
CREATE TABLE public.nullable (k bigint UNIQUE);
CREATE TABLE public.texts (code text PRIMARY KEY);
"""


REFUSED = [
    (TableSpout("nowhere", key="k"), "there is no table nowhere in schema public"),
    (TableSpout("Base", key="k"), "there is no table Base in schema public"),
    (TableSpout("a.b.c", key="k"), "there is no table b.c in schema a"),
    (TableSpout("b" * 64, key="k"), f"there is no table {'b' * 64} in schema"),
    (TableSpout("pairs", key="k"), "view pairs: 2 rows have a key k that is NULL or another row's"),
    (TableSpout("stored", key="k"), "stored is a materialized view, which Postgres does not lock"),
    (TableSpout("numbers", key="k"), "numbers is a sequence"),
    (TableSpout("pair", key="k"), "pair is a type"),
    (TableSpout("base_pkey", key="k"), "base_pkey is an index"),
    (TableSpout("parent", key="k"), "parent has tables that inherit from it"),
    (TableSpout("loose", key="k"), "its key k must be"),
    (TableSpout("named", key="k"), "its key k must be"),
    (TableSpout("unkeyed", key="k"), "its key k must be"),
    (TableSpout("partly", key="k"), "its key k must be"),
    (TableSpout("nullable", key="k"), "its key k must be"),
    (TableSpout("texts", key="code"), "its key code must be"),
    (TableSpout("base", key="v"), "its key v must be"),
    (TableSpout("base", key="K"), "no columns ['K']"),
    (TableSpout("base", key="ctid"), "no columns ['ctid']"),
    (TableSpout("base", key="k", columns=["tableoid", "xmin"]), "'tableoid', 'xmin'"),
    (TableSpout("base", key="k", columns=["k", "colour"]), "colour"),
    (TableSpout("base", key="k" * 64), "no columns"),
    (TableSpout("base", key="k", lag_seconds=9, lag_column="v"), "its column v must be"),
    (TableSpout("base", key="k", lag_seconds=9, lag_column="at"), "timestamptz, NOT NULL"),
    (TableSpout("ours", key="k"), "columns of its own called ['_x']"),
    (TableSpout("loud", key="k"), "columns of its own called ['_N']"),
    (TableSpout("twice", key="k"), "Spark does not tell its columns ['v', 'V'] apart"),
]


def test_what_is_no_table_with_such_columns_is_refused_before_a_txid_is_taken(database, connection):
    """But columns that are not read are nobody's business."""
    database.execute(KINDS)
    wrong = []
    for spout, why in REFUSED:
        try:
            emitter(connection, spout).emit(None)
            said = "nothing"
        except InvalidDefinition as error:
            said = str(error)
        if why not in said:
            wrong.append((spout, said))
    assert wrong == []
    assert rows(connection, "SELECT next_txid FROM reliability.topology") == [(1,)]
    for table in ("ours", "loud", "twice"):
        insert(database, table, (1, 1, 1))
        spout = TableSpout(table, key="k", columns=["k", "v"])
        assert emitter(connection, spout, f"of_{table}").emit(None) == [1], table


# --- shapes of tables ----------------------------------------------------------------------------

LIST = """
CREATE TABLE public.t (gone_first text, k smallint NOT NULL UNIQUE, v bigint, gone text,
                       twice bigint GENERATED ALWAYS AS (v * 2) STORED);
INSERT INTO t (k, v) SELECT n, 1 FROM generate_series(-3, 3) AS n WHERE n <> 0;
INSERT INTO t (k, v) VALUES (-32768, 1), (32767, 1);
ALTER TABLE t DROP COLUMN gone_first, DROP COLUMN gone;
"""
PARTITIONED = """
CREATE TABLE public.t (k bigint PRIMARY KEY, v bigint) PARTITION BY RANGE (k);
CREATE TABLE public.low PARTITION OF t FOR VALUES FROM (MINVALUE) TO (3);
CREATE TABLE public.high PARTITION OF t FOR VALUES FROM (3) TO (MAXVALUE);
INSERT INTO t SELECT n, n FROM generate_series(1, 5) AS n;
"""


def test_dropped_and_generated_columns_and_a_small_negative_key(database, connection, spark):
    database.execute(LIST)
    spout = TableSpout("t", key="k")
    first = emitter(connection, spout)
    assert first.emit(None) == [1]
    [(keys,)] = rows(connection, "SELECT part::text FROM reliability.source_item")
    assert keys == "{[-32768,-32767),[-3,0),[1,4),[32767,32768)}"
    [meta] = batches_of(spout)
    frame = spout.frame(spark, meta)
    assert frame.columns == ["k", "v", "twice", "_x", "_n"]
    read = frame.collect()
    assert {row.twice for row in read} == {2}
    assert fold_of_rows(read) == meta.emitted
    first.transact(1)
    assert totals(connection) == [(8, 8)]


def test_a_partitioned_table_is_one_table_and_a_partition_another(database, connection):
    database.execute(PARTITIONED)
    first = emitter(connection, TableSpout("t", key="k"))
    assert first.emit(None) == [1]
    first.transact(1)
    assert totals(connection) == [(5, 15)]
    assert looked_at(TableSpout("high", key="k")) == (["{[3,6)}"], [3])


LEAST, GREATEST = -(2**63), 2**63 - 1
EXTREMES = [LEAST, LEAST + 1, -1, 0, GREATEST - 1, GREATEST]


def test_a_key_may_be_any_bigint(database, connection):
    """The range of the greatest one has no upper end, as 2^63 is none."""
    create(database, "t", {"k": "bigint PRIMARY KEY", "v": "bigint"})
    insert(database, "t", *((key, 1) for key in EXTREMES))
    spout = TableSpout("t", key="k", max_rows_per_batch=3)
    assert looked_at(spout) == (
        [f"{{[{LEAST},{LEAST + 2}),[-1,0)}}", f"{{[0,1),[{GREATEST - 1},)}}"],
        [3, 3],
    )
    first = emitter(connection, spout)
    assert first.emit(None) == [1, 2]
    for txid in (1, 2):
        first.transact(txid)
    assert totals(connection) == [(6, 6)]
    insert(database, "t", (GREATEST - 2, 1), (LEAST + 2, 1))
    taken = LedgerItems(connection, "tables")
    late = [f"{{[{LEAST + 2},{LEAST + 3}),[{GREATEST - 2},{GREATEST - 1})}}"]
    assert keys_of(batches_of(spout, taken)) == late
    database.execute("DELETE FROM t WHERE k = %s", [GREATEST])
    with pytest.raises(SourceChanged, match="txid 2"):
        spout.plan(None, taken)
    meta = first.runner.refreeze(2, "it was never paid")
    assert keys_of([meta]) == [f"{{[0,1),[{GREATEST - 1},{GREATEST})}}"]
    # the greatest one alone is cut off as any other, and is one item
    create(database, "end", {"k": "bigint PRIMARY KEY"})
    insert(database, "end", [GREATEST - 1], [GREATEST])
    spout = TableSpout("end", key="k", max_rows_per_batch=1)
    assert looked_at(spout)[0] == [f"{{[{GREATEST - 1},{GREATEST})}}", f"{{[{GREATEST},)}}"]
    item = TableKeys(table="t", key="id", keys=f"{{[{GREATEST},)}}", rows=1, xor=0)
    assert item.identity == f"t#{GREATEST}-{2**63}"


def test_views_are_read_as_tables_are(database, spark):
    create(database, "t", {"k": "bigint PRIMARY KEY", "v": "int", "at": "timestamptz"})
    insert(database, "t", (1, 1, "2026-01-01"), (2, 2, "2026-01-01"), (9, 9, "2026-01-01"))
    database.execute("CREATE VIEW public.even AS SELECT k, v * 10 AS v, at FROM t WHERE v < 9")
    database.execute("CREATE MATERIALIZED VIEW public.stored AS SELECT * FROM public.even")
    lag: Any = {"lag_seconds": 1, "lag_column": "at"}
    for spout in (TableSpout("even", key="k"), TableSpout("stored", key="k", **lag)):
        [meta] = batches_of(replace(spout, columns=["k", "v"]))
        read = replace(spout, columns=["k", "v"]).frame(spark, meta).collect()
        assert fold_of_rows(read) == meta.emitted
        assert sorted(tuple(row[:2]) for row in read) == [(1, 10), (2, 20)]


# --- rows that change ----------------------------------------------------------------------------


@pytest.fixture
def accounts(database, connection):
    """The table of docs/sources/tables.md, and what reads it."""
    page = (ROOT / "docs" / "sources" / "tables.md").read_text()
    [code] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    database.execute("SET search_path = public; CREATE SEQUENCE account_versions")
    database.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance int)")
    database.execute(code)
    balances = State(
        "balances",
        key={"id": "integer"},
        values={"balance": Upsert("balance", by={"version": "bigint"}, type="integer")},
        table="public.balances",
    )
    spout = TableSpout("accounts", key="version", rows_change=True, opaque=True)
    topology = Topology(
        "accounts", spout, [balances], lambda b: {"balances": b}, max_spout_pending=3
    )
    return pipeline_of(topology, connection)


def balances(connection):
    return rows(connection, "SELECT id, balance FROM public.balances ORDER BY id")


def test_rows_that_change_are_read_again(accounts, database, connection):
    database.execute("INSERT INTO accounts VALUES (1, 10), (2, 20), (3, 30)")
    first = accounts
    assert first.emit(None) == [1]
    first.transact(1)
    assert balances(connection) == [(1, 10), (2, 20), (3, 30)]
    database.execute("UPDATE accounts SET balance = balance + 1 WHERE id < 3")
    database.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1")
    database.execute("INSERT INTO accounts VALUES (4, 40)")
    second = first.again("second")
    assert second.emit(None) == [2]
    second.transact(2)
    assert balances(connection) == [(1, 12), (2, 21), (3, 30), (4, 40)]
    committed = "SELECT emitted_count FROM reliability.transaction ORDER BY txid"
    assert rows(connection, committed) == [(3,), (3,)]
    first.max_tries += 1
    with pytest.raises(SourceChanged, match="3 rows were emitted, 1 of them still exist"):
        first.transact(1)
    first.runner.refreeze(1, "they have changed since")
    first.replay(1)
    assert balances(connection) == [(1, 12), (2, 21), (3, 30), (4, 40)]


def test_a_row_that_changes_while_its_batch_is_read_belongs_to_the_next_attempt(
    accounts, database, connection
):
    database.execute("INSERT INTO accounts VALUES (1, 10), (2, 20)")
    first = accounts
    assert first.emit(None) == [1]
    grant = first.begin(1)
    database.execute("UPDATE accounts SET balance = 11 WHERE id = 1")
    with pytest.raises(SourceMoved):
        first.run_step(grant)
    first.transact(1)
    assert balances(connection) == [(1, 11), (2, 20)]


def test_an_older_version_that_commits_late_is_read_late(accounts, database, connection):
    """Sessions take versions 3 and 4, and the one with 3 commits last; with a lag none waits."""
    database.execute("INSERT INTO accounts VALUES (1, 10), (2, 20)")
    database.execute(
        "ALTER TABLE accounts ADD at timestamptz NOT NULL DEFAULT now() - interval '1 h'"
    )
    spout = replace(accounts.runner.topology.spout, lag_seconds=60, lag_column="at")
    first = pipeline_of(replace(accounts.runner.topology, spout=spout), connection)
    slow = psycopg2.connect(connection.dsn, options="-c idle_in_transaction_session_timeout=0")
    slow.set_session(readonly=False)
    slow.cursor().execute("UPDATE public.accounts SET balance = 11 WHERE id = 1")
    database.execute("UPDATE accounts SET balance = 21 WHERE id = 2")
    assert first.emit(None) == [1]
    first.transact(1)
    assert balances(connection) == [(1, 10), (2, 21)]
    slow.commit()
    slow.close()
    second = first.again("second")
    assert second.emit(None) == [2]
    second.transact(2)
    assert balances(connection) == [(1, 11), (2, 21)]
