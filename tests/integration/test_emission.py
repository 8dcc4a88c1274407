"""Emission: an item belongs to one txid for ever, and bad input costs nothing (rules E)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability import Count, FileSpout, State
from reliability.core.coordinator import Action, Fail, Wait
from reliability.core.errors import (
    BlockedTooLong,
    DataIntervalMissing,
    FileRefused,
    NothingToEmit,
    NothingToReplay,
    SourceNotReady,
    SourceUnreadable,
    StateDefinitionChanged,
    TargetTableTaken,
    Terminal,
    TooManyBatches,
)
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.deployment.lazy import pa, pq
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.read_rows import ends_of
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.requests import Run, TaskContact, close
from tests.replay.shop import Shop, made
from tests.support.fix_pipeline import Pipeline, month, pipeline_of, shop, write_parquet
from tests.support.fix_postgres import execute, rolled_back, rows
from tests.support.words import Words

ROW = [{"customer": 1, "day": date(1997, 1, 1), "price": Decimal(1)}]
TXIDS = "SELECT txid, interval_start::date, run_id FROM reliability.transaction ORDER BY txid"
TRANSACTION = {
    "topology": "shop", "batch_meta": None, "emitted_xor": None, "emitted_count": None,
    "dag_id": "shop", "run_id": "run",
}  # fmt: skip
NOTHING = "SELECT count(*) FROM reliability.transaction"


@pytest.fixture
def folder(tmp_path):
    for name in ("1997-01/a", "1997-01/b", "1997-02/a"):
        write_parquet(tmp_path / f"{name}.parquet", ROW)
    return tmp_path


@pytest.fixture
def emitter(folder, connection):
    """A pipeline that needs no Spark."""
    return pipeline_of(shop(folder), connection)


def test_known_items_keep_their_txids_and_late_ones_get_new_ones(emitter, folder, connection):
    """No file that has a txid is opened again; what changed there is its attempt's to say."""
    assert emitter.emit(month(1997, 1)) == emitter.emit(month(1997, 1)) == [1, 2]
    with pytest.raises(DataIntervalMissing):  # a new run has the id, or this one is cleared
        emitter.emit(None)
    who = emitter.who("emit")
    cleared = replace(who, this_try=replace(who.this_try, clear_number=1))
    assert emitter.runner.emit(None, cleared, max_batches=9) == [1, 2]
    assert rows(connection, "SELECT count(*) FROM reliability.request") == [(2,)]
    february = emitter.again("scheduled__1997-02")
    assert february.emit(month(1997, 2)) == [3]
    (folder / "1997-01" / "a.parquet").write_bytes(b"broken since")
    write_parquet(folder / "1997-01" / "late.parquet", ROW)
    assert emitter.again().emit(month(1997, 1)) == [1, 2, 4]
    done = "UPDATE reliability.request SET status = 'SATISFIED', ended_at = now() WHERE txid = 1"
    execute(connection, done)
    assert emitter.again().emit(month(1997, 2)) == [2, 3, 4]  # deleted, and made again with its id
    assert [txid for txid, *_ in rows(connection, TXIDS)] == [1, 2, 3, 4]


def test_what_is_refused_allocates_nothing_and_a_later_delivery_succeeds(
    emitter, folder, connection
):
    """A nanosecond timestamp costs no Spark job, no retry and no txid."""
    schema = pa.schema([("customer", pa.int64()), ("day", pa.timestamp("ns"))])
    row = [{"customer": 1, "day": datetime(1997, 2, 1)}]
    write_parquet(folder / "1997-02" / "b.parquet", row, schema)
    said = r'1997-02/b\.parquet: column day is INT64 TIMESTAMP\(NANOS\).*coerce_timestamps="us"'
    with pytest.raises(FileRefused, match=said) as refused:
        emitter.emit(month(1997, 2))
    assert isinstance(refused.value, Terminal)
    with pytest.raises(TooManyBatches, match="2 batches"):  # more than Airflow can map
        emitter.emit(month(1997, 1), max_batches=1)
    with pytest.raises(NothingToEmit, match="1997-03"):
        emitter.emit(month(1997, 3))
    path = folder / "1997-01" / "b.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceUnreadable, match=r"b\.parquet"):
        emitter.emit(month(1997, 1))
    assert rows(connection, NOTHING) == [(0,)]
    write_parquet(path, ROW)
    assert emitter.emit(month(1997, 1)) == [1, 2]


def test_columns_that_differ_from_the_last_committed_batch_are_logged(
    emitter, folder, connection, caplog
):
    emitter.emit(month(1997, 1))
    execute(connection, "UPDATE reliability.topology SET curr_txid = 2")
    schema = pa.schema([("customer", pa.string()), ("day", pa.date32())])
    write_parquet(folder / "1997-02" / "a.parquet", [{"customer": "x"}], schema)
    assert emitter.again("scheduled__1997-02").emit(month(1997, 2)) == [3]
    for said in (
        "column customer is string in",
        "has no column price, which",
        "txid 1 was the last to commit",
    ):
        assert said in caplog.text


def test_where_one_run_works_at_a_time_it_takes_over_what_earlier_ones_have_left(connection):
    """E2: with `@continuous`, a failed run that is cleared would queue behind the one that waits
    for it."""
    first, later, last, held = (
        Words(connection, text).pipeline.again(f"scheduled__{number}")
        for number, text in enumerate(["a b c", "a b c d e f", *["a b c d e f g h i"] * 2])
    )
    assert emit_one_at_a_time(first) == [1]
    assert emit_one_at_a_time(later) == [2]  # the first run works on txid 1
    close(connection, "words", 1, first.run, "its tasks ended without it")
    assert emit_one_at_a_time(last) == [1, 3]
    assert emit_one_at_a_time(last) == [1, 3]  # tried again
    close(connection, "words", 1, last.run, "its tasks ended without it")
    for txid in (1, 3):
        close(connection, "words", txid, last.run, "its tasks ended without it")
    assert emit_one_at_a_time(held, most=1) == [1]  # Airflow maps no more: the next run has 3
    close(connection, "words", 1, held.run, "its tasks ended without it")
    execute(connection, "UPDATE reliability.transaction SET held_reason = 'a test' WHERE txid < 4")
    assert emit_one_at_a_time(last.again("scheduled__5")) == []


def emit_one_at_a_time(pipeline, most=9):
    return pipeline.runner.emit(None, pipeline.who("emit"), max_batches=most, takes_over=True)


def test_txids_follow_the_order_of_emission_without_a_gap(emitter, connection):
    """E3: a backfilled January may come after February."""
    assert emitter.again("scheduled__1997-02").emit(month(1997, 2)) == [1]
    assert emitter.emit(month(1997, 1)) == [2, 3]


def test_runs_that_emit_at_once_share_no_item_and_leave_no_gap(folder, connection, emitter):
    for number in range(3, 11):
        write_parquet(folder / f"1997-{number:02d}" / "a.parquet", ROW)

    def emit(number):
        with LedgerConnection(connection.dsn) as own:
            pipeline = pipeline_of(shop(folder), own).again(f"scheduled__1997-{number:02d}")
            return pipeline.emit(month(1997, number))

    with ThreadPoolExecutor(10) as threads:
        found = [txid for one in threads.map(emit, [*range(3, 11), 3, 4]) for txid in one]
    assert sorted(set(found)) == list(range(1, 9))


def test_the_intervals_that_one_overlaps_are_found_beside_any_others(emitter, connection):
    """E1: only the last interval before its start is looked at, and those that start within it."""
    moments = [month(1997, number).start for number in range(1, 12)]
    emitted = [(0, 1), (1, 2), (2, 2), (2, 5), (6, 6), (7, 8), (7, 7), (8, 10)]
    ends = [(moments[start], moments[end]) for start, end in emitted]
    emitter.emit(month(1997, 1))
    with rolled_back(connection) as tx:
        tx.run(SQL("UPDATE reliability.transaction SET interval_start = NULL, interval_end = NULL"))
        for txid, (start, end) in enumerate(ends, start=10):
            tx.one("insert_transaction", **TRANSACTION, txid=txid, **ends_of(Interval(start, end)))
        for number, start in enumerate(moments):
            for end in moments[number:]:
                asked = {"interval_start": start, "interval_end": end}
                found = tx.all("emitted_intervals", topology="shop", **asked)
                assert sorted((row["interval_start"], row["interval_end"]) for row in found) == (
                    sorted(one for one in ends if one[0] < end and one[1] > start)
                )


ENDED = "its tasks ended without it"


def behind_a_blocked_txid(folder, connection, **options) -> tuple[Pipeline, Action]:
    """February waits for the window, and nobody works on January's txid 1."""
    topology = replace(shop(folder), max_spout_pending=1, **options)
    january = pipeline_of(topology, connection)
    assert january.emit(month(1997, 1)) == [1, 2]
    for txid in (1, 2):
        january.runner.close(txid, january.run, ENDED)
    february = january.again("scheduled__1997-02")
    assert february.emit(month(1997, 2)) == [3]
    return january, february.runner.next_action(3, february.request(3), february.work())


def test_what_is_emitted_behind_a_blocked_txid_waits_for_it(folder, connection):
    """E2: one truncated file must not turn the months behind it red."""
    january, action = behind_a_blocked_txid(folder, connection)
    assert isinstance(action, Wait)
    assert action.blocked is not None
    assert action.blocked.describe().startswith("txid 1 (run scheduled__1997-01, interval 1997-01)")
    january.again().request(1)
    february = january.again("scheduled__1997-02")
    action = february.runner.next_action(3, february.request(3), february.work())
    assert isinstance(action, Wait)
    assert action.blocked is not None
    assert action.blocked.txid == 2  # its run has asked for txid 1 only


def test_a_wait_behind_a_blocked_txid_ends_after_the_topologys_timeout(folder, connection):
    """E2: who sets a timeout wants to see red."""
    _, action = behind_a_blocked_txid(folder, connection, blocked_timeout_seconds=0)
    assert isinstance(action, Fail)
    assert isinstance(action.error, BlockedTooLong)


def test_two_red_runs_of_which_the_earlier_has_one_file_more_do_not_block_each_other(
    emitter, folder, connection
):
    """E2: January's last txid waits for February's, and February's for January's first."""
    february = emitter.again("scheduled__1997-02")
    assert emitter.emit(month(1997, 1)) == [1, 2]
    assert february.emit(month(1997, 2)) == [3]
    for pipeline, txid in ((emitter, 1), (emitter, 2), (february, 3)):
        pipeline.runner.close(txid, pipeline.run, ENDED)
    write_parquet(folder / "1997-01" / "late.parquet", ROW)
    assert emitter.again().emit(month(1997, 1)) == [1, 2, 4]
    assert february.again().emit(month(1997, 2)) == [3]


@pytest.mark.slow
def test_after_a_rollback_a_late_file_and_a_release_the_runs_are_cleared_in_order(
    python_pipeline, tmp_path
):
    """E2: each run waits for the other's txids, whichever is cleared first."""
    shop_ = python_pipeline(shop(tmp_path))
    months = {n: shop_.again(f"scheduled__1997-0{n}") for n in (1, 2, 3)}
    for number, run in months.items():
        write_parquet(tmp_path / f"1997-0{number}" / "a.parquet", ROW)
        for txid in run.emit(month(1997, number)):
            run.transact(txid)
            run.runner.close(txid, run.run, "its tasks ended")
    roll_back(shop_.runner.connection, "shop", 1, "February was delivered twice")
    write_parquet(tmp_path / "1997-02" / "late.parquet", ROW)
    runs = release(shop_.runner.connection, "shop")
    assert [run.run_id for run in runs] == ["scheduled__1997-02", "scheduled__1997-03"]
    february, march = months[2].again(), months[3].again()
    assert february.emit(month(1997, 2)) == [2, 4]
    assert march.emit(month(1997, 3)) == [3]
    for run, txid in ((february, 2), (march, 3), (february, 4)):
        run.transact(txid)
    assert rows(shop_.runner.connection, "SELECT sum(orders) FROM public.per_day") == [(4,)]


PER_DAY_BY_TEXT = State("per_day", key={"day": "text"}, values={"n": Count()})
PER_YEAR = State("per_year", key={"year": "bigint"}, values={"n": Count()})


CHANGES = [  # of the states, and the one that an error names
    (lambda states: [states[0], PER_DAY_BY_TEXT], "per_day"),
    (lambda states: states[:1], "per_day"),
    (lambda states: [*states, PER_YEAR], "per_year"),
    (lambda states: [states[0], PER_YEAR], "per_year"),
]


def test_states_that_changed_before_the_first_commit_are_taken_and_after_it_refused(
    emitter, folder, connection
):
    """C10: a person who corrects a definition need not rename the topology.

    A txid sealed for other states than the ledger's could never be committed.
    """
    emitter.emit(month(1997, 1))
    assert emitter.begin(1).attempt.attempt_id == 0
    for number, (change, _) in enumerate(CHANGES, start=1):
        changed = with_states(folder, connection, change)
        assert changed.begin(1).attempt.attempt_id == number
        recorded = rows(connection, "SELECT state FROM reliability.state ORDER BY 1")
        assert recorded == sorted((state.name,) for state in changed.runner.topology.states)
    emitter.emit(month(1997, 1))
    park(connection, "shop", 1, "a broken file")
    emitter.emit(month(1997, 2))
    for change, named in CHANGES:
        changed = with_states(folder, connection, change)
        with pytest.raises(StateDefinitionChanged, match=named):
            changed.emit(month(1997, 2))
        with pytest.raises(StateDefinitionChanged, match=named):
            changed.begin(2)
    assert rows(connection, "SELECT DISTINCT txid FROM reliability.attempt") == [(1,)]
    assert emitter.begin(2).attempt.attempt_id == 0


def with_states(folder, connection, change):
    topology = shop(folder)
    return pipeline_of(replace(topology, states=change(list(topology.states))), connection)


def test_files_of_a_clone_that_moved_are_the_same_files(tmp_path, connection, monkeypatch):
    """E1: their paths are kept relative, however the pattern is spelled: else they count again."""
    for home in ("old", "new"):
        write_parquet(tmp_path / home / "in" / "1997-01" / "a.parquet", ROW)
        monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path / home))
        for pattern in ("in", "in/../in", f"file://{tmp_path}/{home}/in"):
            assert pipeline_of(shop(pattern), connection).emit(month(1997, 1)) == [1]


def test_a_table_with_rows_of_its_own_is_not_taken(emitter, connection):
    execute(connection, "CREATE TABLE public.per_day (day date)")
    with pytest.raises(TargetTableTaken, match="belongs to no state"):
        emitter.emit(month(1997, 1))
    assert rows(connection, "SELECT count(*) FROM reliability.state") == [(0,)]


# --- parts of files, opaque batches, readiness ---------------------------------------------------


def write_groups(path, groups):
    """Write a Parquet file with a row in each row group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"customer": list(range(groups))}), path, row_group_size=1)


def emitter_of(connection, folder, **options):
    spout = FileSpout(f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet", **options)
    topology = replace(shop(folder), spout=spout)
    return pipeline_of(topology, connection)


ITEMS = "SELECT txid, part::text FROM reliability.source_item ORDER BY txid"


def test_row_groups_keep_their_txids_when_the_limits_change(folder, connection):
    """E1: a row belongs to one txid for ever."""
    write_groups(folder / "1997-03" / "a.parquet", 5)
    march = month(1997, 3)
    by_two = emitter_of(connection, folder, max_rows_per_batch=2)
    assert by_two.emit(march) == [1, 2, 3]
    pieces = [(1, "{[0,2)}"), (2, "{[2,4)}"), (3, "{[4,5)}")]
    assert rows(connection, ITEMS) == pieces
    for limits in ({}, {"max_rows_per_batch": 1}, {"max_rows_per_batch": 4}):
        assert emitter_of(connection, folder, **limits).emit(march) == [1, 2, 3]
    write_groups(folder / "1997-03" / "b.parquet", 2)
    assert emitter_of(connection, folder).emit(march) == [1, 2, 3, 4]
    assert by_two.again().emit(march) == [1, 2, 3, 4]
    assert rows(connection, ITEMS) == [*pieces, (4, "{(,)}")]


class OvertakenSpout(FileSpout):
    """Another run emits between this one's first plan and its lock."""

    def plan(self, interval, allocated):
        items = super().plan(interval, allocated)
        for other in others.pop(self.pattern, []):
            other.emit(interval)
        return items


others: dict[str, list[Pipeline]] = {}


def test_a_run_that_was_overtaken_plans_again(folder, connection):
    """E1: the plan is made outside the lock; with other limits, other parts of the same file."""
    with LedgerConnection(connection.dsn) as own:
        for number, most in enumerate((None, 2, 4)):
            interval, first = month(1997, 3 + number), 2 * number + 1
            write_groups(folder / str(interval) / "a.parquet", 6)
            pattern = f"{folder}/{{data_interval_start:%Y-%m}}/*.parquet"
            spout = OvertakenSpout(pattern, max_rows_per_batch=most)
            faster = emitter_of(own, folder, max_rows_per_batch=3).again(f"faster {number}")
            others[pattern] = [faster]
            run = pipeline_of(replace(shop(folder), spout=spout), connection).again(f"{number}")
            assert run.emit(interval) == [first, first + 1]
            assert rows(connection, ITEMS)[-2:] == [(first, "{[0,3)}"), (first + 1, "{[3,6)}")]


OPAQUE = {"opaque": True, "schema": "customer bigint, day date, price decimal(10,2)"}
BATCHES = "SELECT txid, batch_meta IS NULL, verdict FROM reliability.transaction ORDER BY txid"


def test_an_opaque_spout_gets_txids_and_its_batches_later(folder, connection):
    """E4: as many as would be cut now, or one; which rows they have is settled when they begin."""
    opaque = emitter_of(connection, folder, **OPAQUE)
    assert opaque.emit(month(1997, 1)) == opaque.emit(month(1997, 1)) == [1, 2]
    assert rows(connection, BATCHES) == [(1, True, None), (2, True, None)]
    assert rows(connection, ITEMS) == []
    # what waits for its batch will take what is there: a late file needs one txid more
    write_parquet(folder / "1997-01" / "late.parquet", ROW)
    assert opaque.again().emit(month(1997, 1)) == [1, 2, 3]
    assert opaque.again("scheduled__1997-02").emit(month(1997, 2)) == [4]
    with pytest.raises(NothingToEmit):
        opaque.again("scheduled__1997-05").emit(month(1997, 5))
    empty = emitter_of(connection, folder, allow_empty=True, **OPAQUE).again("scheduled__1997-05")
    assert empty.emit(month(1997, 5)) == empty.again().emit(month(1997, 5)) == [5]


def test_a_source_that_is_not_ready_costs_nothing_and_is_asked_again(folder, connection):
    """Storm M6."""
    ready_file = f"{folder}/{{data_interval_start:%Y-%m}}/_SUCCESS"
    ready = emitter_of(connection, folder, ready_file=ready_file)
    with pytest.raises(SourceNotReady, match="txid 1"):
        ready.emit(month(1997, 1))
    assert rows(connection, NOTHING) == [(0,)]
    (folder / "1997-01" / "_SUCCESS").touch()
    assert ready.emit(month(1997, 1)) == [1, 2]
    with pytest.raises(SourceNotReady, match="txid 3"):
        ready.emit(month(1997, 2))


# --- E9: a run that names the txids to replay ----------------------------------------------------

BY_HAND = Run(dag_id="shop", run_id="manual__1")
REQUESTS = (
    "SELECT txid, number, kind, status, reason FROM reliability.request WHERE run_id = 'manual__1'"
    " ORDER BY request_id"
)


@pytest.fixture
def store(connection):
    """Three txids that have committed, by a spout without intervals."""
    store = Shop(connection)
    store.commit_first(3)
    return store


def ask(pipeline, txids, *, interval=None, max_tries=0, refreeze=False, max_batches=9, **more):
    """Run the emit task of a run by hand; its max_tries rise when it is cleared."""
    this_try = TaskTry(max_tries=max_tries, try_id=f"emit {max_tries}")
    who = TaskContact(run=BY_HAND, task="emit", this_try=this_try, **more)
    options = {"max_batches": max_batches, "refreeze": refreeze}
    return pipeline.runner.emit(interval, who, replay=txids, **options)


def test_a_run_that_names_txids_asks_for_exactly_these_and_looks_at_no_source(store, connection):
    """E9: nothing new is emitted, and no emission is recorded."""
    store.makes[2] = made(102)
    store.source.sizes.append(6)  # a fourth batch, which nobody has emitted
    store.source.gone.add(0)
    assert ask(store, [2, 3], reason="it was net", max_batches=2) == [2, 3]
    opened = [(txid, 1, "REPLAY", "OPEN", "it was net") for txid in (2, 3)]
    assert rows(connection, REQUESTS) == opened
    for txid in (2, 3):
        assert all(one.is_nothing for one in store.transact(txid, BY_HAND)) is (txid == 3)
    assert store.runner.settle(BY_HAND, [2, 3]) == [2, 3]
    assert rows(connection, NOTHING) == [(3,)]
    emissions = "SELECT count(*) FROM reliability.emission WHERE run_id = 'manual__1'"
    assert rows(connection, emissions) == [(0,)]


def test_it_does_so_for_a_spout_that_reads_by_interval_with_or_without_one(
    emitter, folder, connection
):
    """E9: and the interval that it has is not emitted, nor counted as such."""
    with pytest.raises(NothingToReplay, match="has never emitted txid 1"):
        ask(emitter, [1])
    assert rows(connection, "SELECT count(*) FROM reliability.topology") == [(0,)]
    assert emitter.emit(month(1997, 1)) == [1, 2]
    for txid in (1, 2):
        park(connection, "shop", txid, "not now")  # committed, and to be replayed
    for path in (folder / "1997-01").iterdir():
        path.unlink()
    with pytest.raises(DataIntervalMissing, match="manual__1 of shop"):
        ask(emitter, None)
    for tries, interval in enumerate((None, month(1997, 2))):
        assert ask(emitter, [1, 2], interval=interval, max_tries=tries) == [1, 2]
    assert rows(connection, NOTHING) == [(2,)]
    assert emitter.again("scheduled__1997-02").emit(month(1997, 2)) == [3]


def test_what_has_not_committed_or_was_never_emitted_is_named_and_nothing_is_asked_for(
    store, connection
):
    """E9: a mistyped number would process what nobody meant; nor is anything frozen anew."""
    with pytest.raises(TooManyBatches, match="3 batches") as too_many:
        ask(store, [1, 2, 3], max_batches=2)
    assert "by several runs" in str(too_many.value)
    store.deliver(made(4), made(5))
    store.source.sizes[1] = 8
    for wanted, named in (
        ([2, 3, 4], "has not committed txid 4"),
        ([3, 4, 5, 9], r"has not committed txids 4\.\.5, and has never emitted txid 9"),
        ([9], "has never emitted txid 9"),
    ):
        for is_dry_run in (False, True):
            with pytest.raises(NothingToReplay, match=rf"shop {named}\. What"):
                ask(store, wanted, refreeze=True, is_dry_run=is_dry_run)
    assert rows(connection, REQUESTS) == []
    assert rows(connection, "SELECT count(*) FROM reliability.refreeze") == [(0,)]


def test_a_retry_adopts_what_it_asked_for_and_a_clear_asks_again(store, connection):
    """R1, as of any other run; the reason is recorded each time, of a cleared task too.

    E9: of what was rolled back it asks for nothing: the runs that have emitted it commit it first.
    """
    for _ in range(2):
        assert ask(store, [2], reason="it was net") == [2]
    store.transact(2, BY_HAND)
    assert ask(store, [2], max_tries=1, reason="it was net") == [2]
    store.transact(2, BY_HAND)
    cleared = replace(store.who(2, BY_HAND), this_try=TaskTry(max_tries=7), reason="it was net")
    store.runner.contact(2, cleared)
    statuses = enumerate(("SATISFIED", "SATISFIED", "OPEN"), start=1)
    expected = [(2, number, "REPLAY", status, "it was net") for number, status in statuses]
    assert rows(connection, REQUESTS) == expected
    roll_back(connection, "shop", 1, "all wrong")
    release(connection, "shop")
    with pytest.raises(NothingToReplay, match="has not committed txid 2"):
        ask(store, [2], max_tries=2)
    store.do_again(2, 3)
    assert ask(store, [2], max_tries=2) == [2]


def test_exactly_these_txids_are_refrozen_and_once_a_run(store, connection):
    for txid in (1, 2):
        store.source.sizes[txid - 1] = 8
        store.makes[txid] = made(9, rows=8)
    refrozen = "SELECT txid, reason FROM reliability.refreeze"
    for tries, rows_now in ((0, 8), (1, 7)):
        store.source.sizes[1] = rows_now
        assert ask(store, [2, 3], max_tries=tries, refreeze=True) == [2, 3]
        assert rows(connection, refrozen) == [(2, "run manual__1 of shop requested it")]
    emitted = "SELECT emitted_count FROM reliability.transaction WHERE txid = 2"
    assert rows(connection, emitted) == [(8,)]


def test_a_skipped_txid_among_them_is_left_out_as_by_a_clear(store, connection):
    """C8: its request is satisfied at once."""
    store.deliver(made(4))
    skip(connection, "shop", 4, "a test file")
    assert ask(store, [3, 4], refreeze=True, reason="it was net") == [3, 4]
    assert rows(connection, REQUESTS) == [
        (3, 1, "REPLAY", "OPEN", "it was net"),
        (4, 1, "REPLAY", "SATISFIED", "it was net"),
    ]
    for txid in (3, 4):
        store.transact(txid, BY_HAND)
    assert store.runner.settle(BY_HAND, [3, 4]) == [3, 4]


def test_as_a_dry_run_it_tells_what_would_change(store, connection):
    before = store.tables()
    store.makes[2] = made(102)
    assert ask(store, [2], is_dry_run=True) == [2]
    assert not all(one.is_nothing for one in store.transact(2, BY_HAND, is_dry_run=True))
    assert store.runner.settle(BY_HAND, [2]) == []
    assert store.tables() == before
