"""Attempts: granted once, fenced for ever, sealed by what is in Postgres (rules A, R2, G4, G5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability import Append, State, Topology
from reliability.core.errors import (
    AttemptFenced,
    AttemptIncomplete,
    FrameWithoutAccounting,
    LedgerBusy,
    LedgerUnavailable,
    RowsUnaccounted,
    SchemaMismatch,
    SourceChanged,
)
from reliability.core.graph import THE_STEP
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.spark import spool
from reliability.spark.stage import stage_task
from reliability.states.tables import StateTables
from reliability.transaction.emit.requests import close
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import declare_partitions, renew_lease
from reliability.transaction.topology.server import fence_after_restore
from tests.support.fix_pipeline import in_both_engines, month, shop, write_parquet
from tests.support.fix_postgres import rows
from tests.support.spark_rows import spark_batch

ROWS = [
    {"customer": n % 3, "day": date(1997, 1, 1 + n % 5), "price": Decimal(n)} for n in range(20)
]
STATUS = "SELECT attempt_id, status, reason_code FROM reliability.attempt ORDER BY attempt_id"
STAGED = "SELECT count(*) FROM reliability_contribution.shop__per_customer"


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "1997-01" / "a.parquet", ROWS)
    return tmp_path


@pytest.fixture
def emitted(folder, pipeline):
    """A pipeline with one emitted txid."""
    shop_pipeline = pipeline(shop(folder))
    assert shop_pipeline.emit(month(1997, 1)) == [1]
    return shop_pipeline


def staged_batch(grant, rows_of_customer=((7, 1, 5, 1),)):
    """One Arrow batch in COPY's order for per_customer: (customer, orders, x, n)."""
    values = [
        {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id}
        | {"customer": c, "orders": o, "_revenue_count": 0, "_rows": o, "_x": x, "_n": n}
        for c, o, x, n in rows_of_customer
    ]
    return spark_batch(StateTables("shop", shop_state()), values)


def shop_state():
    return shop("/nowhere").states[0]


def task_of(connection, grant, sink="per_customer"):
    return replace(stage_task(connection, StateTables("shop", shop_state()), grant), sink=sink)


def stage(connection, grant, partition=0, task=None):
    (task or task_of(connection, grant)).stage(partition, iter([staged_batch(grant)]))


# --- A1, G4: fencing --------------------------------------------------------------------------


def test_attempt_ids_are_never_reused_and_old_ones_are_fenced(emitted, connection):
    first = emitted.begin(1)
    second = emitted.begin(1)
    assert [first.attempt.attempt_id, second.attempt.attempt_id] == [0, 1]
    assert first.nonce != second.nonce
    assert rows(connection, STATUS) == [(0, "FENCED", "ATTEMPT_FENCED"), (1, "PROCESSING", None)]


@in_both_engines
def test_a_zombie_counts_in_nothing(emitted, connection):
    zombie = emitted.begin(1)
    emitted.begin(1)
    with pytest.raises(AttemptFenced):
        stage(connection, zombie)
    with pytest.raises(AttemptFenced):
        renew_lease(connection, zombie)
    with pytest.raises(AttemptFenced):
        declare_partitions(connection, zombie, "per_customer", 1)
    with pytest.raises(AttemptFenced):
        emitted.seal(zombie)
    with pytest.raises(AttemptFenced):
        emitted.run_step(zombie)
    assert not emitted.runner.end_attempt(zombie, AttemptIncomplete("late"))
    assert rows(connection, STAGED) == [(0,)]
    assert rows(connection, "SELECT count(*) FROM reliability.ack") == [(0,)]
    assert rows(connection, STATUS)[1] == (1, "PROCESSING", None)


def test_the_same_attempt_id_with_another_nonce_is_somebody_else(emitted, connection):
    """A1: after a restore from backup an attempt_id may be granted twice."""
    from dataclasses import replace

    grant = emitted.begin(1)
    twin = replace(grant, nonce="00000000-0000-0000-0000-000000000000")
    with pytest.raises(AttemptFenced):
        stage(connection, twin)
    stage(connection, grant)


def test_the_fence_comes_last_so_a_zombie_in_mid_copy_leaves_nothing(emitted, connection):
    """A2: a check at the start would let a zombie commit what it copied since."""
    zombie = emitted.begin(1)

    def batches():
        yield staged_batch(zombie)
        emitted.begin(1)  # fenced while the COPY is under way, and nothing holds that up
        yield staged_batch(zombie)

    with pytest.raises(AttemptFenced):
        task_of(connection, zombie).stage(0, batches())
    assert rows(connection, STAGED) == [(0,)]


SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = %(name)s AND xact_start < now()"
)


class OfPartition:
    """Stands for the TaskContext of the only partition."""

    @staticmethod
    def partitionId():
        return 0

    @staticmethod
    def stageId():
        return 7


@pytest.mark.parametrize("held_bytes", [1 << 20, 1])
def test_no_transaction_waits_for_a_slow_process_function(
    emitted, connection, monkeypatch, held_bytes
):
    """A2: it would keep Postgres from vacuuming for as long as the function computes."""
    from pyspark import TaskContext

    monkeypatch.setattr(TaskContext, "get", OfPartition)
    monkeypatch.setattr(spool, "MEMORY_BYTES", held_bytes)
    monkeypatch.setattr(spool, "SAMPLE_BYTES", 1 << 60)
    grant = emitted.begin(1)
    seen = []

    def computed():
        for customer in range(3):
            seen.append(rows(connection, SESSIONS, name=f"reliability {grant}")[0][0])
            yield staged_batch(grant, [(customer, 1, 5, 1)])

    (result,) = task_of(connection, grant)(computed())
    assert result.to_pylist() == [{"partition": 0, "stage": 7}]
    assert seen == [0, 0, 0]
    assert rows(connection, STAGED) == [(3,)]


def test_an_empty_partition_acks(emitted, connection, monkeypatch):
    """A5: the acks must be exactly those of all partitions."""
    from pyspark import TaskContext

    monkeypatch.setattr(TaskContext, "get", OfPartition)
    list(task_of(connection, emitted.begin(1))(iter([])))
    assert rows(connection, "SELECT partition, count, rows FROM reliability.ack") == [(0, 0, 0)]


# --- A2, A5: a task that runs twice -----------------------------------------------------------


def test_a_task_that_runs_twice_counts_once_and_reports_success(emitted, connection):
    grant = emitted.begin(1)
    task = task_of(connection, grant)
    stage(connection, grant, task=task)
    stage(connection, grant, task=task)
    assert rows(connection, STAGED) == [(1,)]
    assert rows(connection, "SELECT partition, count, rows FROM reliability.ack") == [(0, 1, 1)]


def test_another_write_action_is_no_copy_of_the_task(emitted, connection):
    grant = emitted.begin(1)
    stage(connection, grant)
    with pytest.raises(AttemptFenced, match="another write"):
        stage(connection, grant)


def test_acks_are_per_sink(emitted, connection):
    """A5: two states are two writes with the same partition numbers."""
    grant = emitted.begin(1)
    stage(connection, grant)
    stage(connection, grant, task=task_of(connection, grant, "per_day"))
    assert rows(connection, "SELECT sink FROM reliability.ack ORDER BY sink") == [
        ("per_customer",),
        ("per_day",),
    ]


def in_five_parts(batch):
    return {"lines": batch.repartition(5)}


def test_an_attempt_stages_on_so_many_sessions_and_no_more(folder, pipeline, connection):
    lines = State("lines", values={"customer": Append("customer", "bigint")})
    spout = shop(folder).spout
    topology = Topology("lines", spout, [lines], in_five_parts, max_staging_sessions=2)
    pipe = pipeline(topology)
    pipe.emit(month(1997, 1))
    pipe.process(1)
    assert rows(connection, "SELECT partitions FROM reliability.sink") == [(2,)]


def test_a_partition_is_declared_once(emitted, connection):
    grant = emitted.begin(1)
    declare_partitions(connection, grant, "per_customer", 2)
    with pytest.raises(AttemptFenced):
        declare_partitions(connection, grant, "per_customer", 1)


@in_both_engines
def test_a_lost_partition_fails_the_attempt(emitted, connection):
    grant = emitted.begin(1)
    emitted.run_step(grant)
    with connection.transaction() as tx:
        tx.run(SQL("DELETE FROM reliability.ack WHERE sink = 'per_day' AND partition = 0"))
    with pytest.raises(AttemptIncomplete, match="per_day"):
        emitted.seal(grant)
    assert rows(connection, STATUS) == [(0, "FAILED", "ATTEMPT_INCOMPLETE")]


def test_an_attempt_whose_driver_said_nothing_is_not_sealed(emitted):
    """An empty batch has ack_val 0 from the start; the exit code of spark-submit is not proof."""
    with pytest.raises(AttemptIncomplete, match="its write did not finish"):
        emitted.seal(emitted.begin(1))


# --- A6, V1, V3: the seal ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("DELETE FROM reliability_contribution.shop__per_day WHERE ctid = "
         "(SELECT min(ctid) FROM reliability_contribution.shop__per_day)", RowsUnaccounted),
        ("TRUNCATE reliability_contribution.shop__per_day", RowsUnaccounted),
        ("INSERT INTO reliability_contribution.shop__per_day"
         " SELECT * FROM reliability_contribution.shop__per_day LIMIT 1", RowsUnaccounted),
        ("UPDATE reliability.sink SET ack_val = ack_val # 1", AttemptIncomplete),
    ],
)  # fmt: skip
def test_the_seal_folds_what_is_physically_there(emitted, connection, damage, error):
    grant = emitted.begin(1)
    emitted.run_step(grant)
    with connection.transaction() as tx:
        tx.run(SQL(damage))
    with pytest.raises(error):
        emitted.seal(grant)
    assert rows(connection, "SELECT status FROM reliability.attempt") == [("FAILED",)]
    emitted.transact(1)
    assert rows(connection, "SELECT sum(orders) FROM per_day") == [(20,)]


def lose_a_row(batch):
    return {"per_customer": batch.where("price <> 7"), "per_day": batch}


def double_a_row(batch):
    return {"per_customer": batch.union(batch.where("price = 7")), "per_day": batch}


def lose_one_double_one(batch):
    doubled = batch.where("price <> 8").union(batch.where("price = 7"))
    return {"per_customer": doubled, "per_day": batch}


@in_both_engines
@pytest.mark.parametrize(
    ("process", "what"),
    [
        (lose_a_row, "1 of 20 emitted rows did not reach it"),
        (double_a_row, "1 more rows reached it than the 20"),
        (lose_one_double_one, "are not those that were emitted"),
    ],
)
def test_a_row_that_the_process_function_lost_or_doubled(folder, pipeline, process, what):
    shop_pipeline = pipeline(shop(folder, process))
    shop_pipeline.emit(month(1997, 1))
    with pytest.raises(RowsUnaccounted, match=f"per_customer.*{what}"):
        shop_pipeline.process(1)


def forget_accounting(batch):
    return {"per_customer": batch, "per_day": batch.groupBy("day", "price").count()}


def forget_a_state(batch):
    return {"per_customer": batch}


def forget_a_column(batch):
    return {"per_customer": batch.drop("price"), "per_day": batch}


def round_the_price(batch):
    return {"per_customer": batch.withColumn("price", batch.price.cast("double")), "per_day": batch}


@in_both_engines
@pytest.mark.parametrize(
    ("process", "error", "what"),
    [
        (forget_accounting, FrameWithoutAccounting, "per_day"),
        (forget_a_state, SchemaMismatch, "per_day"),
        (forget_a_column, SchemaMismatch, "price"),
        (round_the_price, SchemaMismatch, "double in Spark does not fit"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_at_plan_time(folder, pipeline, process, error, what):
    shop_pipeline = pipeline(shop(folder, process))
    shop_pipeline.emit(month(1997, 1))
    with pytest.raises(error, match=what):
        shop_pipeline.run_step(shop_pipeline.begin(1))


def per_order(batch):
    from pyspark.sql import functions as F

    from reliability import aggregate

    days = aggregate(batch, ["day", "customer"], price=F.sum("price"))
    return {"per_customer": days, "per_day": batch}


def test_aggregate_keeps_the_accounts(folder, pipeline, connection):
    shop_pipeline = pipeline(shop(folder, per_order))
    shop_pipeline.emit(month(1997, 1))
    shop_pipeline.transact(1)
    assert rows(connection, "SELECT sum(orders), sum(revenue) FROM per_customer") == [
        (15, Decimal("190.00"))
    ]


@in_both_engines
def test_a_file_that_changed_after_its_batch_was_emitted(folder, emitted, connection):
    """E6: at begin, and again when the attempt is sealed."""
    grant = emitted.begin(1)
    emitted.run_step(grant)
    original = folder / "1997-01" / "a.parquet"
    kept = original.read_bytes(), original.stat()
    write_parquet(original, ROWS[:-1])
    with pytest.raises(SourceChanged):
        emitted.seal(grant)
    with pytest.raises(SourceChanged):
        emitted.run_step(emitted.begin(1))
    assert rows(connection, "SELECT curr_txid FROM reliability.topology") == [(1,)]
    import os

    original.write_bytes(kept[0])
    os.utime(original, ns=(kept[1].st_atime_ns, kept[1].st_mtime_ns))
    emitted.transact(1, task=THE_STEP)
    assert rows(connection, "SELECT sum(orders) FROM per_day") == [(20,)]


# --- A8: what is sealed or committed is out of reach ------------------------------------------


def test_a_processed_attempt_cannot_be_failed_fenced_or_closed(emitted, connection):
    grant = emitted.process(1)
    assert not emitted.runner.end_attempt(grant, AttemptIncomplete("late"))
    emitted.runner.seal(grant, THE_STEP)  # repeated, it is harmless
    assert emitted.runner.close(1, emitted.run, "torn down")
    assert rows(connection, STATUS) == [(0, "PROCESSED", None)]
    emitted.runner.commit(1)
    assert not emitted.runner.end_attempt(grant, AttemptIncomplete("later"))
    assert rows(connection, STATUS) == [(0, "COMMITTED", None)]


def test_teardown_ends_the_unsealed_attempt_of_its_own_request_only(emitted, connection):
    other = emitted.again("manual__1")
    other.emit(month(1997, 1))
    emitted.begin(1)
    close(connection, "shop", 1, other.run, "torn down")
    assert rows(connection, STATUS) == [(0, "PROCESSING", None)]
    close(connection, "shop", 1, emitted.run, "torn down")
    assert rows(connection, STATUS) == [(0, "FENCED", "REQUEST_CLOSED")]


# --- R2: two requests for one txid ------------------------------------------------------------


def test_another_request_waits_for_a_valid_lease_and_takes_over_an_expired_one(emitted, connection):
    other = emitted.again("manual__1")
    other.emit(month(1997, 1))
    emitted.begin(1)
    assert other.try_begin(1) is None
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET lease_until = now() - interval '1 s'"))
    assert other.begin(1).attempt.attempt_id == 1


def test_a_task_that_is_cleared_while_it_runs_does_not_wait_for_what_it_left_behind(
    emitted, connection
):
    emitted.begin(1)
    again = emitted.again()
    assert again.begin(1).attempt.attempt_id == 1
    assert rows(connection, STATUS) == [(0, "FENCED", "REQUEST_CLOSED"), (1, "PROCESSING", None)]


def test_a_processed_attempt_of_another_request_is_taken_as_ones_own(emitted, connection):
    """Else two runs of one interval fence each other's finished work for ever."""
    other = emitted.again("manual__1")
    other.emit(month(1997, 1))
    emitted.process(1)
    other.transact(1)
    emitted.transact(1)
    assert rows(connection, STATUS) == [(0, "COMMITTED", None)]
    assert rows(connection, "SELECT status FROM reliability.request") == [("SATISFIED",)] * 2


# --- A7, K1, R3: silence ----------------------------------------------------------------------


def test_an_expired_lease_is_found_by_any_sweep(emitted, connection):
    emitted.begin(1)
    swept = sweep(connection, "shop", Leases())
    assert not swept.expired
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET lease_until = now() - interval '1 s'"))
    swept = sweep(connection, "shop", Leases())
    assert [str(attempt) for attempt in swept.expired] == ["1:0"]
    assert rows(connection, STATUS) == [(0, "FENCED", "ATTEMPT_FENCED")]


def test_an_ack_renews_the_lease_by_the_wall_clock(emitted, connection):
    grant = emitted.begin(1)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET lease_until = now()"))
    stage(connection, grant)
    assert rows(
        connection, "SELECT lease_until > clock_timestamp() + lease * 0.9 FROM reliability.attempt"
    ) == [(True,)]


def test_a_silent_request_is_given_up_and_reopened_by_the_next_contact(emitted, connection):
    """R3: a run may be deleted; what waits for it must not wait for ever."""
    emitted.begin(1)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.request SET renewed_at = now() - interval '1 day'"))
    assert sweep(connection, "shop", Leases()).given_up
    assert rows(connection, STATUS) == [(0, "FENCED", "REQUEST_CLOSED")]
    assert rows(connection, "SELECT status FROM reliability.request") == [("GIVEN_UP",)]
    emitted.transact(1)
    assert rows(connection, "SELECT number, status FROM reliability.request") == [(1, "SATISFIED")]


def test_a_sweep_commits_what_is_overdue(emitted, connection):
    """K1: a processed txid whose run died would hold up everyone behind it."""
    emitted.process(1)
    assert not sweep(connection, "shop", Leases()).committed
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET processed_at = now() - interval '1 hour'"))
    assert [str(c.attempt) for c in sweep(connection, "shop", Leases()).committed] == ["1:0"]


def test_clean_up_deletes_what_can_never_count_and_nothing_else(emitted, connection):
    dead = emitted.begin(1)
    stage(connection, dead)
    emitted.transact(1, task=THE_STEP)
    before = rows(connection, STAGED)
    swept = sweep(connection, "shop", Leases(), clean=True)
    assert [str(attempt) for attempt in swept.cleaned] == ["1:0"]
    assert rows(connection, STAGED) == [(before[0][0] - 1,)]
    assert not sweep(connection, "shop", Leases(), clean=True)


# --- A3: locks --------------------------------------------------------------------------------


def test_acks_do_not_wait_for_who_holds_the_topology(emitted, connection):
    """A3: foreign keys take KEY SHARE on its row; FOR UPDATE would deadlock with acks."""
    grant = emitted.begin(1)
    other = LedgerConnection(connection.dsn)
    with other.transaction() as tx:
        tx.one("lock_topology", topology="shop")
        stage(connection, grant)
    other.close()


def test_who_holds_the_topology_lets_go_of_an_attempt_row_it_cannot_get(
    emitted, connection, monkeypatch
):
    """A3: it lets go of both, and ends the session that holds the row that is to be fenced."""
    grant = emitted.begin(1)
    monkeypatch.setattr("reliability.ledger.locks.HOLDERS_PATIENCE_SECONDS", 1)
    holder = LedgerConnection(connection.dsn, application_name=f"reliability {grant}")

    def hold():
        with holder.transaction() as tx:
            tx.one("renew_lease", topology="shop", txid=1, attempt_id=0, nonce=grant.nonce)
            with pytest.raises(LedgerBusy):
                emitted.try_begin(1)
            assert emitted.begin(1).attempt.attempt_id == 1  # it holds nothing any more
            tx.all("topologies")

    with pytest.raises(LedgerUnavailable):
        hold()
    holder.close()


def test_who_passes_by_does_not_wait_for_who_is_at_work(emitted, connection):
    emitted.process(1)
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET processed_at = now() - interval '1 hour'"))
    holder = LedgerConnection(connection.dsn)
    with holder.transaction() as tx:
        tx.one("lock_topology", topology="shop")
        assert not sweep(connection, "shop", Leases()).committed
    holder.close()
    assert sweep(connection, "shop", Leases()).committed


# --- A4, A1: sessions, and a server that was restored -----------------------------------------


def test_a_stalled_copy_of_an_ended_attempt_is_ended(emitted, connection):
    """A4: it ignores every timeout, and would hold up the clean-up of its table."""
    dead = emitted.begin(1)
    emitted.begin(1)

    def stalled():
        yield staged_batch(dead)
        sweep(connection, "shop", Leases(), clean=True)
        yield staged_batch(dead)

    with pytest.raises(LedgerUnavailable):
        task_of(connection, dead).stage(0, stalled())
    assert rows(connection, STAGED) == [(0,)]


def test_a_server_that_was_restored_fences_every_live_attempt(emitted, connection):
    """A1: the ledger of a backup may grant an attempt_id for the second time."""
    grant = emitted.process(1)
    sweep(connection, "shop", Leases())
    assert rows(connection, STATUS) == [(0, "PROCESSED", None)]
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.server SET timeline = timeline - 1"))
    sweep(connection, "shop", Leases())
    assert rows(connection, STATUS) == [(0, "FENCED", "ATTEMPT_FENCED")]
    assert emitted.runner.commit(1) == []
    assert emitted.begin(1).nonce != grant.nonce


def test_a_restored_server_leaves_a_decided_commit_and_mirrors_alone(emitted, connection):
    """A1, C6: other databases may have the commit already; it has to go on."""
    emitted.process(1)
    sweep(connection, "shop", Leases())
    decided = (
        "UPDATE reliability.checkpoint SET phase = 'COMMITTING', commit_number = 1,"
        """ plan = '[{"txid": 1, "attempt_id": 0, "commit_number": 1}]'"""
    )
    with connection.transaction() as tx:
        tx.run(SQL(decided))
        tx.run(SQL("UPDATE reliability.server SET timeline = timeline - 1"))
        fence_after_restore(tx)
    assert rows(connection, STATUS) == [(0, "PROCESSED", None)]
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.checkpoint SET phase = 'PREPARING'"))
        tx.run(SQL("UPDATE reliability.server SET timeline = timeline - 1"))
        fence_after_restore(tx)
    assert rows(connection, STATUS) == [(0, "FENCED", "ATTEMPT_FENCED")]
