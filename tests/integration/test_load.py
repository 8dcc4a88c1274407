"""How much one ledger carries: topologies, pending txids, rows of a txid, acks, readers, sessions.

Spark does not run, except where its sessions are counted. Each limit has a small case here, and the
stated one among the slow tests. `pytest -s` shows the figures.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import psutil
import psycopg2
import pytest

from benchmarks.ledger_growth import call, milliseconds_of
from benchmarks.memory import MEGABYTE
from benchmarks.project.transactions import Transactions
from benchmarks.sizing import sessions
from benchmarks.study import highest
from reliability import Append, Count, State, Sum, Topology, TransactionalState
from reliability.core.attempt import Grant
from reliability.core.errors import LedgerBusy
from reliability.core.fold import Fold
from reliability.core.graph import THE_STEP
from reliability.core.leases import Leases
from reliability.core.sessions import OF_AN_ATTEMPT
from reliability.core.spout import AllocatedItems, Interval, SourceItem
from reliability.deployment.lazy import np, pa
from reliability.deployment.topologies import load_topology
from reliability.ledger import locks
from reliability.ledger.connection import LedgerConnection
from reliability.spark.driver_environment import find_spark_submit
from reliability.spark.launch import SparkSubmit, run_with_log
from reliability.spark.stage import stage_task as stage_task_module
from reliability.spark.stage.stage_task import stage_task
from reliability.spark.submission import Submission
from reliability.spouts.memory import MemorySlice
from reliability.spouts.tuple_ids import tuple_ids
from reliability.states import attempt_table
from reliability.states.digest import DIGEST
from reliability.states.kinds import stored_state
from reliability.transaction.inspect.verify import verify
from reliability.transaction.maintain import compaction
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import declare_partitions, read_batch_meta
from reliability.transaction.topology.alter import alter
from reliability.transaction.topology.read_standing import read_standing
from tests.replay.shop import Shop, made, shown, states
from tests.support.batches import write_numbers
from tests.support.fix_pipeline import Pipeline, pipeline_of
from tests.support.fix_postgres import (
    database_of,
    execute,
    own_session,
    rows,
    run_as_admin,
    tables_of,
    wait_until_it_waits,
)
from tests.support.processor import processor_seconds
from tests.support.python_driver import reduced, rows_of
from tests.support.runner import TransactionRunner
from tests.support.without_spark import WithoutSpark, unknown_of

TOTALS = {"n": Count(), "total": Sum("price", "numeric(14,2)")}
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@contextmanager
def watching(
    dsn: str, count: Callable[[LedgerConnection], Counter[str]] = sessions
) -> Iterator[Counter[str]]:
    """Count in a session of its own during the block; lend the most that there was of each."""
    with LedgerConnection(dsn, "watch") as connection:
        rows(connection, "SELECT")  # it has its place before others take them all
        with highest(partial(count, connection), every=0.02) as most:
            yield most


# --- many topologies -----------------------------------------------------------------------------

TXIDS = 5  # of a topology, all of them in its window
#: A process here is a task and a driver at once: its session, one that renews, and one that stages.
SESSIONS_OF_A_PROCESS = 3


def batches_of(number: int) -> list[list[dict[str, Any]]]:
    return [made(100 * number + txid) for txid in range(1, TXIDS + 1)]


def shop_of(connection: LedgerConnection, number: int) -> Shop:
    """Return a topology with a table of its own."""
    name = f"shop_{number}"
    totals = State("totals", key={"k": "bigint"}, values=TOTALS, table=f"totals_{number}")
    log = State("log", values={"word": Append("word", "text")}, table=f"log_{number}")
    return Shop(connection, kinds=lambda _: [totals, log], name=name, pending=TXIDS)


def process_and_commit(dsn: str, jobs: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Do the txids (of topology, txid) as their tasks do; return when that began and ended."""
    began = time.time()
    with LedgerConnection(dsn, "reliability task") as connection:
        for number, txid in jobs:
            shop = shop_of(connection, number)
            shop.source.sizes += map(len, batches_of(number))
            shop.makes.update(enumerate(batches_of(number), start=1))
            shop.process(txid)
            shop.runner.commit(0)  # what is due: perhaps nothing, or what others have processed
    return began, time.time()


def summed(batches: Sequence[Sequence[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """Return what a state with TOTALS then shows of each key."""
    all_rows = [row for batch in batches for row in batch]
    keys = {row["k"] for row in all_rows}
    prices = {k: [r["price"] for r in all_rows if r["k"] == k] for k in keys}
    return sorted(
        ((k, len(of), sum(p for p in of if p is not None)) for k, of in prices.items()), key=repr
    )


@pytest.mark.parametrize(
    ("many", "processes"), [(4, 3), pytest.param(64, 8, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(600)
def test_many_topologies_on_one_ledger_commit_in_order_without_a_deadlock(
    connection, many, processes
):
    for number in range(many):
        assert shop_of(connection, number).deliver(*batches_of(number)) == [*range(1, TXIDS + 1)]
    jobs = [(number, txid) for number in range(many) for txid in range(1, TXIDS + 1)]
    random.Random(5).shuffle(jobs)  # so that several processes work for each topology
    spawn = get_context("spawn")
    with (
        watching(connection.dsn) as seen,
        # each is there before any begins
        ProcessPoolExecutor(processes, spawn, spawn.Barrier(processes).wait) as pool,
    ):
        parts = [jobs[n::processes] for n in range(processes)]
        spans = [*pool.map(partial(process_and_commit, connection.dsn), parts)]
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    most = seen["sessions at once"]
    print(f"\n{many} topologies: {len(jobs) / seconds:.1f} txids a second, {most} sessions at once")
    assert 0 < most <= processes * SESSIONS_OF_A_PROCESS
    assert rows(connection, DEADLOCKS) == [(0,)]
    log = "SELECT topology, array_agg(txid ORDER BY commit_number) FROM reliability.commit_log"
    assert dict(rows(connection, f"{log} GROUP BY 1")) == {
        f"shop_{number}": [*range(1, TXIDS + 1)] for number in range(many)
    }
    for number in range(many):
        found = shown(shop_of(connection, number))
        assert found["totals"] == summed(batches_of(number))
        words = [(row["word"],) for batch in batches_of(number) for row in batch]
        assert found["log"] == sorted(words, key=repr)


# --- many pending txids --------------------------------------------------------------------------

#: So many times longer may a txid take with 1,000 pending ones as with 100.
FACTOR = 2.0
FEW, MANY = 100, 1000
OF_A_TXID = {"emit", "process", "sweep", "commit, one by one", "commit, in groups"}
#: Of a look at all pending txids together, in milliseconds.
MOST_OF_A_LOOK = 500
ALONE = 40
LATELY = 40  # processed while nearly all of the others are
LOOKS = 10

Figures = dict[str, float]
"""What was measured -> milliseconds of a processor, of one txid or of one look at all of them."""


def pending_shop(connection: LedgerConnection, txids: int) -> Shop:
    """Return a topology with so many txids of a row, all of them in its window."""
    totals = State("totals", key={"k": "bigint"}, values=TOTALS, table=f"totals_{txids}")
    return Shop(connection, kinds=lambda _: [totals], name=f"pending_{txids}", pending=txids)


def process_out_of_order(connection: LedgerConnection, txids: int, alone: int) -> Figures:
    """Let so many txids of a topology wait for the first one, commit them, and measure the parts.

    :param alone: how many of them share no physical commit
    """
    shop = pending_shop(connection, txids)
    batches = [made(txid, rows=1) for txid in range(1, txids + 1)]
    others = [txid for txid in range(2, txids + 1) if txid != alone + 1]
    random.Random(7).shuffle(others)
    took = {"emit": spent(connection, partial(shop.deliver, *batches)) / txids}
    each([partial(shop.process, txid) for txid in others[:-LATELY]])
    took["process"] = spent_each(connection, [partial(shop.process, n) for n in others[-LATELY:]])
    assert shop.runner.commit(0) == []
    took["sweep"] = spent_each(connection, [shop.runner.sweep] * LOOKS)
    look = partial(look_at_all, connection, shop.name)
    took["look for all that wait"] = spent_each(connection, [look] * LOOKS)
    took["status, by the clock"] = min(milliseconds_of(partial(call, "status")) for _ in range(3))
    process_the_awaited(shop, 1, in_groups=False)
    took["commit, one by one"] = spent(connection, partial(shop.runner.commit, 0)) / alone
    process_the_awaited(shop, alone + 1, in_groups=True)
    left = txids - alone
    took["commit, in groups"] = spent(connection, partial(shop.runner.commit, 0)) / left
    of_topology = f"FROM reliability.commit_log WHERE topology = '{shop.name}'"
    in_order = f"SELECT array_agg(txid ORDER BY commit_number) {of_topology}"
    assert rows(connection, in_order) == [([*range(1, txids + 1)],)]
    assert shown(shop)["totals"] == summed(batches)
    return took


def process_the_awaited(shop: Shop, txid: int, *, in_groups: bool) -> None:
    grouping = "UPDATE reliability.topology SET groups_commits = %(on)s WHERE topology = %(name)s"
    execute(shop.connection, grouping, on=in_groups, name=shop.name)
    shop.process(txid)


def look_at_all(connection: LedgerConnection, topology: str) -> None:
    """Do what the triggerer does for the tasks that wait."""
    with connection.transaction(reads_only=True) as tx:
        read_standing(tx, topology)


def spent(connection: LedgerConnection, work: Callable[[], object]) -> float:
    return 1000 * processor_seconds(connection, work)


def spent_each(connection: LedgerConnection, works: Sequence[Callable[[], object]]) -> float:
    return spent(connection, partial(each, works)) / len(works)


def each(works: Iterable[Callable[[], object]]) -> None:
    for work in works:
        work()


def test_txids_that_wait_for_the_first_commit_in_their_order(connection):
    """C2: none before it, though all are processed, and none out of its turn."""
    process_out_of_order(connection, txids=30, alone=5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_txid_takes_no_longer_beside_a_thousand_pending_ones(connection):
    few, many = (process_out_of_order(connection, n, alone=ALONE) for n in (FEW, MANY))
    for what, took in many.items():
        print(f"{what}: {few[what]:.1f} ms beside {FEW}, {took:.1f} ms beside {MANY:,}")
    for what, took in many.items():
        assert took < (FACTOR * few[what] if what in OF_A_TXID else MOST_OF_A_LOOK), what


# --- many rows of a txid -------------------------------------------------------------------------

CHUNK = 50_000  # rows that Spark would hand over at once
#: Megabytes that a session of Postgres may have for itself, and this process beside what it had.
#: All rows of the slow case together take more of each.
MOST_OF_A_SESSION, MOST_OF_THE_DRIVER = 256, 50
PROCESSES_OF_SERVER = """
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def memory(connection: LedgerConnection) -> Counter[str]:
    """Return the most megabytes that one session has for itself, and those of this process."""
    found = Counter(driver=psutil.Process().memory_info().rss // MEGABYTE)
    for (pid,) in rows(connection, PROCESSES_OF_SERVER):
        with suppress(psutil.Error):  # it has ended
            info = psutil.Process(pid).memory_info()
            found["session"] = max(found["session"], (info.rss - info.shared) // MEGABYTE)
    return found


@dataclass(frozen=True)
class OneBatch(WithoutSpark):
    """A batch of so many rows, which nobody holds in memory."""

    rows: int

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        return unknown_of([MemorySlice(partition=0, offset=0, rows=self.rows)], allocated)


def contribution(columns: Sequence[str], part: range) -> Iterator[Any]:
    """Yield the contribution of rows with a key each, as the tasks of Spark get it."""
    for start in range(part.start, part.stop, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, part.stop), dtype=np.uint64)
        ids, keys = tuple_ids(0, numbers).view(np.int64), numbers.view(np.int64)
        known = {"k": keys, "total": keys, "_x": ids, DIGEST: ids}
        ones = np.ones(len(numbers), np.int64)
        yield pa.RecordBatch.from_pydict({name: known.get(name, ones) for name in columns})


@dataclass
class Streamed(Pipeline):
    """A pipeline whose driver stages the batch in two partitions, a chunk after the other."""

    def run_step(self, grant: Grant, step: str = THE_STEP) -> None:
        connection, topology = self.runner.connection, self.runner.topology
        assert isinstance(topology.spout, OneBatch)
        count = topology.spout.rows
        stored = stored_state(topology.name, topology.states[0])
        own = attempt_table.open_table(connection, stored, grant, count)
        task = stage_task(connection, own, grant)
        columns = (*own.reduced_columns(), DIGEST)
        parts = range(count // 2), range(count // 2, count)
        for number, part in enumerate(parts):
            task.stage(number, contribution(columns, part))
        declare_partitions(connection, grant, stored.name, len(parts))


def no_frame(batch: Any) -> dict[str, Any]:
    raise AssertionError("the test stages the rows")


@pytest.mark.parametrize("count", [150_000, pytest.param(5_000_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_rows_of_a_txid_pass_by_and_are_never_all_in_memory(connection, count):
    values = {"n": Count(), "total": Sum("total", "bigint")}
    states = [State("totals", key={"k": "bigint"}, values=values)]
    topology = Topology("many_rows", OneBatch(count), states=states, process=no_frame)
    pipeline = Streamed(TransactionRunner(topology, connection), None)
    pipeline.emit(None)
    before = memory(connection)["driver"]
    with watching(connection.dsn, memory) as seen:
        staged = milliseconds_of(lambda: pipeline.process(1)) / 1000
        committed = milliseconds_of(lambda: pipeline.runner.commit(1)) / 1000
    print(
        f"\n{count:,} keys: staged in {staged:.1f} s, committed in {committed:.1f} s; "
        f"a session of Postgres {seen['session']} MB, the driver {seen['driver'] - before} MB more"
    )
    assert 0 < seen["session"] < MOST_OF_A_SESSION
    assert 0 < seen["driver"] < before + MOST_OF_THE_DRIVER
    found = "SELECT count(*), sum(n)::bigint, sum(total)::bigint FROM public.totals"
    assert rows(connection, found) == [(count, count, count * (count - 1) // 2)]


# --- many acks at once ---------------------------------------------------------------------------

SINK = "SELECT ack_val, unacked, partitions FROM reliability.sink"
ACKS = "SELECT count(*), count(DISTINCT partition) FROM reliability.ack"


@pytest.mark.parametrize(
    ("partitions", "at_once"), [(60, 12), pytest.param(500, 50, marks=pytest.mark.slow)]
)
def test_acks_at_once_settle_a_sink_once_within_the_places_that_there_are(
    connection, monkeypatch, partitions, at_once
):
    """A2, A5: some tasks run twice; half of them find no place for their session, and wait."""
    monkeypatch.setattr(stage_task_module, "LedgerConnection", LedgerConnection)
    totals = State("totals", key={"k": "bigint"}, values=TOTALS)
    shop = Shop(connection, kinds=lambda _: [totals])
    batch = made(1, rows=partitions)
    shop.source.sizes.append(partitions)
    shop.makes[1] = batch
    pipeline = pipeline_of(shop.topology, connection)
    assert pipeline.emit(None) == [1]
    grant, tables = pipeline.begin(1), stored_state(shop.name, totals)
    staged = rows_of(shop.source, read_batch_meta(connection, grant))
    parts = [reduced(tables, grant, staged[n::partitions]) for n in range(partitions)]
    task = stage_task(connection, tables, grant)
    numbers = [*range(partitions), *range(0, partitions, 10)]
    random.Random(3).shuffle(numbers)
    places = at_once // 2
    limit = f"ALTER DATABASE {database_of(connection.dsn)} CONNECTION LIMIT"
    with watching(connection.dsn) as seen, ThreadPoolExecutor(at_once) as pool:
        run_as_admin(f"{limit} {2 + places}")  # beside this session, and that of the watch
        began = time.monotonic()
        [*pool.map(lambda number: task.stage(number, iter([parts[number]])), numbers)]
        seconds = time.monotonic() - began
    most = seen["sessions at once"]
    print(f"\n{partitions} acks by {at_once} tasks in {seconds:.1f} s, {most} sessions at once")
    assert 1 < most <= places
    unacked = declare_partitions(connection, grant, "totals", partitions)
    assert unacked == Fold()
    assert rows(connection, SINK) == [(0, 0, partitions)]
    assert rows(connection, ACKS) == [(partitions, partitions)]
    pipeline.seal(grant)
    pipeline.runner.commit(1)
    assert shown(shop)["totals"] == summed([batch])


# --- slow readers --------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    """Who holds the topology, a merge, or the topology's lock, waits a moment for a reader."""
    monkeypatch.setattr(locks, "HOLDERS_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(attempt_table, "MERGE_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 2)  # attempts have tables of their own
    monkeypatch.setattr(compaction, "KEPT_TABLES", 0)


@pytest.fixture
def read_shop(connection, impatient):
    """A state of each kind, after two txids."""
    shop = Shop(connection, tasks=2)
    shop.commit(made(1), made(2))
    return shop


@contextmanager
def reading(dsn: str, *tables: str, name: str = "reader") -> Iterator[Any]:
    """Read tables in a transaction that goes on during the block, with one snapshot."""
    with closing(own_session(dsn, application_name=name)) as session:
        session.set_session(isolation_level="REPEATABLE READ", readonly=True)
        cursor = session.cursor()
        for table in tables:
            cursor.execute(f"SELECT count(*) FROM {table}")
        yield cursor


def test_a_reader_of_all_tables_stops_no_commit_no_replay_and_no_sweep(read_shop, connection):
    """A report with a snapshot of hours: who waited for it would raise LedgerBusy."""
    tables = [state.target[1] for state in read_shop.topology.states]
    with reading(connection.dsn, *tables) as cursor:
        cursor.execute("DECLARE slow CURSOR FOR SELECT * FROM viewed")
        cursor.execute("FETCH 3 FROM slow")
        before = len(cursor.fetchall())
        for number in range(3, 8):
            read_shop.commit(made(number))
        read_shop.correct(2, made(9))
        swept = sweep(connection, "shop", Leases(), clean=True)
        cursor.execute("FETCH ALL FROM slow")
        assert before + len(cursor.fetchall()) == 12
        cursor.execute("SELECT sum(n) FROM exact")
        assert cursor.fetchone() == (12,)
    assert swept.merged > 0  # those of contributions, which no report reads
    assert rows(connection, "SELECT sum(n)::int FROM exact") == [(42,)]
    assert all(one.is_exact in (True, None) for one in verify(connection, "shop"))


#: A state that keeps no contributions.
TRANSACTIONAL = [TransactionalState("totals", key={"k": "bigint"}, values=TOTALS)]


@pytest.mark.parametrize("kinds", [states, lambda _: TRANSACTIONAL], ids=["all", "transactional"])
def test_a_dump_that_began_before_the_commit_stops_no_commit(connection, impatient, kinds):
    """H10: pg_dump reads each table to its end, also an attempt's own, which the commit drops."""
    shop = Shop(connection, kinds=kinds, tasks=2)
    shop.commit(made(1), made(2))
    shop.deliver(made(3))
    shop.process(3)
    tables = tables_of(connection)
    with reading(connection.dsn) as dump:
        dump.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS SHARE MODE")
        shop.transact(3)
        shop.commit(made(4))
        sweep(connection, "shop", Leases(), clean=True)
    before = shown(shop)
    sweep(connection, "shop", Leases(), clean=True)
    own = "SELECT state FROM reliability.attempt_table"
    assert {state for (state,) in rows(connection, own)} <= {"viewed"}
    assert shown(shop) == before
    assert all(one.is_exact in (True, None) for one in verify(connection, "shop"))


def test_an_alteration_behind_a_reader_gives_up_and_commits_go_on(read_shop, connection):
    """C11: it holds the topology, and waits for the table; others queue behind it meanwhile."""
    changed = [
        replace(state, values={**state.values, "also": Count()}) if state.name == "exact" else state
        for state in read_shop.topology.states
    ]
    altered = replace(read_shop.topology, states=changed, process=None)

    def alter_it() -> None:
        with LedgerConnection(connection.dsn, "altering") as own:
            alter(own, altered, "a test")

    with reading(connection.dsn, "exact"), ThreadPoolExecutor() as pool:
        altering = pool.submit(alter_it)
        wait_until_it_waits(connection, "altering")
        read_shop.commit(made(3))
        with pytest.raises(LedgerBusy):
            altering.result(timeout=30)
        read_shop.commit(made(4))
    alter_it()
    assert rows(connection, "SELECT sum(n)::int FROM exact") == [(24,)]


def test_a_commit_behind_a_lock_of_a_persons_gives_up_and_holds_nobody_up(read_shop, connection):
    """A3: an ALTER TABLE of theirs waits for a reader for ever; only commits cannot go on."""
    with (
        ThreadPoolExecutor() as pool,
        reading(connection.dsn, "exact"),
        closing(own_session(connection.dsn, application_name="person")) as person,
    ):
        check = "ALTER TABLE exact ADD CHECK (true) NOT VALID"
        altering = pool.submit(person.cursor().execute, check)
        wait_until_it_waits(connection, "person")
        with pytest.raises(LedgerBusy):
            read_shop.commit(made(3))
        assert read_shop.deliver(made(4)) == [4]
        read_shop.process(4)
        person.cancel()
        with pytest.raises(psycopg2.errors.QueryCanceled):
            altering.result(timeout=30)
        read_shop.transact(3)
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(5,)]


# --- sessions ------------------------------------------------------------------------------------

CORES = 4
WIDE = """
from reliability import Append, FileSpout, State, Topology


def spread(batch):
    return {"lines": batch.repartition(12)}


topology = Topology(
    "wide",
    FileSpout("wide/*.parquet", allow_empty=True),
    states=[State("lines", values={"n": Append("n", "bigint")})],
    process=spread,
    max_staging_sessions=SESSIONS,
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("most", [2, 32])
def test_an_attempt_has_no_more_sessions_than_the_docs_say(connection, tmp_path, monkeypatch, most):
    """A task, a driver, and as many as stage at once: docs/scale.md#sessions."""
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"wide_{most}"
    (tmp_path / f"{module}.py").write_text(WIDE.replace("SESSIONS", str(most)))
    write_numbers(tmp_path / "wide" / "1.parquet", range(1_200_000), group=100_000)
    program = find_spark_submit()
    assert program is not None
    launcher = SparkSubmit(program=program, master=f"local[{CORES}]", code=[str(tmp_path)])

    def submit(_: Any, topology: Topology, grant: Grant, step: str) -> None:
        submission = Submission(module=module, grant=grant, step=step)
        run_with_log(launcher, submission, lambda: True)

    with (
        LedgerConnection(connection.dsn, "reliability task") as task,
        watching(connection.dsn) as seen,
    ):
        work = Transactions(task, load_topology(module, "wide"), submit)
        work.runner.leases = Leases(request=1)  # it is renewed from the beginning
        work.transact()
    staging = min(most, CORES)
    found = dict(seen)
    print(f"\n{CORES} cores, max_staging_sessions={most}: {found}")
    assert rows(connection, "SELECT count(*) FROM lines") == [(1_200_000,)]
    assert 1 <= found.pop("1:0") <= staging
    assert found.pop("sessions at once") <= staging + OF_AN_ATTEMPT
    assert found.keys() == {"task", "renews", "driver", "progress"}
    assert set(found.values()) == {1}
