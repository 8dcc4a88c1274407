"""A Spark task's transaction, the seal, and what a sweep does with attempts (rules A, K1, V1)."""

from __future__ import annotations

import pytest
from psycopg2.sql import SQL

from reliability.core.errors import AttemptIncomplete, LedgerUnavailable, RowsUnaccounted
from reliability.core.leases import Leases
from reliability.ledger.connection import LedgerConnection
from reliability.spark.stage import spool
from reliability.spark.stage.stage_task import stage_task
from reliability.states.kinds import stored_state
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process.attempt_messages import read_batch_meta
from reliability.transaction.topology.server import fence_after_restore
from tests.support.fix_pipeline import TWENTY, month, shop, write_parquet
from tests.support.fix_postgres import execute, rows
from tests.support.python_driver import reduced, rows_of

STATUS = "SELECT attempt_id, status, reason_code FROM reliability.attempt ORDER BY attempt_id"
STAGED = "SELECT count(*) FROM reliability_contribution.shop__per_customer"
TABLES = stored_state("shop", shop("/nowhere").states[0])


@pytest.fixture
def emitted(tmp_path, python_pipeline):
    """A pipeline with one emitted txid."""
    write_parquet(tmp_path / "1997-01" / "a.parquet", TWENTY)
    pipe = python_pipeline(shop(tmp_path))
    assert pipe.emit(month(1997, 1)) == [1]
    return pipe


# --- the Spark task's transaction ----------------------------------------------------------------

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


@pytest.fixture
def in_a_task(monkeypatch):
    from pyspark import TaskContext

    monkeypatch.setattr(TaskContext, "get", OfPartition)


def test_no_transaction_waits_for_a_slow_process_function(
    emitted, connection, monkeypatch, in_a_task
):
    """A2: it would keep Postgres from vacuuming for as long as the function computes.

    A5: an empty partition acks, as the acks must be exactly those of all partitions.
    """
    monkeypatch.setattr(spool, "SAMPLE_BYTES", 1 << 60)
    for held_bytes in (1 << 20, 1):
        monkeypatch.setattr(spool, "MEMORY_BYTES", held_bytes)
        grant = emitted.begin(1)
        seen: list[int] = []
        (result,) = stage_task(connection, TABLES, grant)(computed(emitted, grant, seen))
        assert result.to_pylist() == [{"partition": 0, "stage": 7}]
        assert seen == [0, 0, 0]
    assert rows(connection, STAGED) == [(6,)]
    list(stage_task(connection, TABLES, emitted.begin(1))(iter([])))
    acked = "SELECT partition, count, rows FROM reliability.ack WHERE attempt_id = 2"
    assert rows(connection, acked) == [(0, 0, 0)]


def computed(emitted, grant, seen):
    """Compute three rows, and note each time how many transactions of the task are open."""
    connection = emitted.runner.connection
    for row in rows_of(emitted.runner.topology.spout, read_batch_meta(connection, grant))[:3]:
        seen.append(rows(connection, SESSIONS, name=f"reliability {grant}")[0][0])
        yield reduced(TABLES, grant, [row])


# --- the seal ------------------------------------------------------------------------------------


DAMAGE = {
    "DELETE FROM reliability_contribution.shop__per_day WHERE ctid ="
    " (SELECT min(ctid) FROM reliability_contribution.shop__per_day)": RowsUnaccounted,
    "TRUNCATE reliability_contribution.shop__per_day": RowsUnaccounted,
    "INSERT INTO reliability_contribution.shop__per_day"
    " SELECT * FROM reliability_contribution.shop__per_day LIMIT 1": RowsUnaccounted,
    "UPDATE reliability.sink SET ack_val = ack_val # 1": AttemptIncomplete,
}


def test_the_seal_folds_what_is_physically_there(emitted, connection):
    """A6, V1."""
    for damage, error in DAMAGE.items():
        grant = emitted.begin(1)
        emitted.run_step(grant)
        execute(connection, damage)
        with pytest.raises(error):
            emitted.seal(grant)
        execute(connection, "TRUNCATE reliability_contribution.shop__per_day")
    assert rows(connection, "SELECT status FROM reliability.attempt") == [("FAILED",)] * len(DAMAGE)
    emitted.transact(1)
    assert rows(connection, "SELECT sum(orders) FROM per_day") == [(20,)]


def test_a_lost_answer_to_a_seal_ends_nothing(emitted, connection, monkeypatch):
    """S3: the task failed without a reason, and a retry was spent."""
    grant = emitted.begin(1)
    emitted.run_step(grant)
    run = LedgerConnection.run

    def lose(self, statement, **parameters):
        answer = run(self, statement, **parameters)
        if statement == "end_seal":
            raise LedgerUnavailable("the answer is lost")
        return answer

    monkeypatch.setattr(LedgerConnection, "run", lose)
    with pytest.raises(LedgerUnavailable, match="the answer is lost"):
        emitted.seal(grant)
    assert rows(connection, STATUS) == [(0, "PROCESSED", None)]


# --- sweeps --------------------------------------------------------------------------------------


def test_a_sweep_commits_what_is_overdue_and_does_not_wait_for_who_is_at_work(emitted, connection):
    """K1: a processed txid whose run died would hold up everyone behind it."""
    emitted.process(1)
    assert not sweep(connection, "shop", Leases()).committed
    with connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.attempt SET processed_at = now() - interval '1 hour'"))
    with LedgerConnection(connection.dsn) as other, other.transaction() as tx:
        tx.one("lock_topology", topology="shop")
        assert not sweep(connection, "shop", Leases()).committed
    assert [str(c.attempt) for c in sweep(connection, "shop", Leases()).committed] == ["1:0"]


def test_a_restored_server_leaves_a_decided_commit_alone(emitted, connection):
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
