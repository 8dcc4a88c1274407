"""What a monitor reads from the ledger: where each topology stands, and what has committed when."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest
from psycopg2.extras import RealDictCursor
from psycopg2.sql import SQL

from reliability.core.errors import AttemptIncomplete
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.repair import repair
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.process.attempt_messages import end_attempt
from reliability.transaction.topology.lifecycle import pause
from tests.replay.shop import ROW_LENGTH, made
from tests.support.fix_postgres import admin_session, execute, rows, run_as_admin
from tests.support.fix_shop import shop_with

origin, shop = shop_with(2, 3)


def metrics(connection, topology="shop"):
    with connection.transaction() as tx:
        found = SQL("SELECT * FROM reliability.metrics WHERE topology = %(topology)s")
        return dict(tx.one(found, topology=topology))


def test_where_a_topology_stands(shop, connection):
    execute(connection, "UPDATE reliability.transaction SET emitted_at = now() - interval '1 hour'")
    found = metrics(connection)
    assert found["lag_txids"] == 1
    assert found["lag_seconds"] == pytest.approx(3600, abs=60)
    assert (found["attempts"], found["attempts_last_hour"]) == (2, 2)
    assert (found["failed"], found["fenced"], found["quarantined_rows"]) == (0, 0, 0)
    assert (found["commits"], found["rows_committed"]) == (2, 2 * ROW_LENGTH)
    assert 0 <= found["last_commit_seconds"] < 60
    assert (found["blocked"], found["held"], found["paused"]) == (0, 0, 0)
    assert found["last_commit_at"] is not None


def test_nothing_is_late_before_the_first_txid_and_after_the_last(shop, connection):
    shop.transact(3)
    assert metrics(connection)["lag_txids"] == metrics(connection)["lag_seconds"] == 0
    execute(
        connection,
        "INSERT INTO reliability.topology (topology, max_spout_pending) VALUES ('new', 1)",
    )
    found = metrics(connection, "new")
    assert found["lag_seconds"] == 0
    assert found["last_commit_at"] is found["last_commit_seconds"] is None
    assert found["contribution_bytes"] == found["rows_committed"] == found["commits"] == 0


def test_attempts_that_live_and_that_failed(shop, connection):
    def found(*names):
        return tuple(metrics(connection)[name] for name in names)

    shop.process(3)
    assert found("processing", "processed") == (0, 1)
    fail = "SET status = 'FAILED', reason_code = 'x', ended_at = now() WHERE status = 'PROCESSED'"
    execute(connection, f"UPDATE reliability.attempt {fail}")
    assert found("processed", "failed", "failed_last_hour") == (0, 1, 1)
    execute(
        connection,
        "UPDATE reliability.attempt SET status = 'FENCED', ended_at = now() - interval '2 h',"
        " granted_at = now() - interval '2 h' WHERE status = 'FAILED'",
    )
    assert found("failed", "fenced", "fenced_last_hour") == (0, 1, 0)
    assert found("attempts", "attempts_last_hour") == (3, 2)


def test_what_is_blocked_held_and_paused(shop, connection):
    grant = shop.begin(3)
    assert metrics(connection)["processing"] == 1
    end_attempt(connection, grant, AttemptIncomplete("it broke"), fence=True)
    execute(connection, "UPDATE reliability.request SET status = 'CLOSED', ended_at = now()"
                    " WHERE status = 'OPEN'")  # fmt: skip
    found = metrics(connection)
    assert (found["blocked"], found["blocked_txids"], found["held"]) == (1, 1, 0)
    roll_back(connection, "shop", 1, "wrong prices")
    pause(connection, "shop", "wrong prices")
    found = metrics(connection)
    assert (found["blocked"], found["blocked_txids"], found["held"]) == (1, 2, 1)
    assert (found["lag_txids"], found["paused"]) == (2, 1)


def test_the_bytes_of_all_tables_with_contributions(shop, connection):
    """Partitions that a person has made, and attempts' own tables, count too."""
    asked = (
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
        " WHERE c.relnamespace = 'reliability_contribution'::regnamespace AND c.relkind = 'r'"
    )
    assert rows(connection, asked) == [(metrics(connection)["contribution_bytes"],)]
    execute(
        connection,
        """
        ALTER TABLE reliability_contribution.shop__newest RENAME TO newest_1;
        CREATE TABLE reliability_contribution.shop__newest
            (LIKE reliability_contribution.newest_1) PARTITION BY RANGE (_txid);
        ALTER TABLE reliability_contribution.shop__newest
            ATTACH PARTITION reliability_contribution.newest_1 FOR VALUES FROM (1) TO (MAXVALUE);
        CREATE TABLE reliability_contribution.attempt_7 (n bigint);
        INSERT INTO reliability_contribution.attempt_7 SELECT generate_series(1, 10000);
        INSERT INTO reliability.attempt_table OVERRIDING SYSTEM VALUE
        VALUES (7, 'shop', 'log', 1, 0, NULL, false)
        """,
    )
    assert rows(connection, asked) == [(metrics(connection)["contribution_bytes"],)]


def test_what_has_committed_when(shop, connection):
    shop.replay(1)
    execute(
        connection,
        "UPDATE reliability.commit_log SET committed_at = '2026-01-01 10:00:30+00',"
        "       began_at = '2026-01-01 10:00:28+00';"
        "UPDATE reliability.transaction SET emitted_at = '2026-01-01 10:00:00+00'",
    )
    roll_back(connection, "shop", 1, "wrong prices")
    for view in ("minute", "hour"):
        first, second = rows(
            connection,
            f"SELECT {view}::text, commits, replays, rollbacks, rows, median_commit_seconds,"
            f" median_seconds FROM reliability.commits_by_{view} ORDER BY 1",
        )
        assert first == ("2026-01-01 10:00:00+00", 2, 1, 0, 3 * ROW_LENGTH, 2.0, 30.0)
        assert second[1:5] == (0, 0, 1, 0)


def test_rows_are_of_batches_and_every_rollback_counts(shop, connection):
    def counted():
        by = "SELECT sum(rows), sum(rollbacks) FROM reliability.commits_by_"
        return {*rows(connection, f"{by}minute"), *rows(connection, f"{by}hour")}

    shop.deliver(made(4))
    park(connection, "shop", 3, "its file is broken")
    skip(connection, "shop", 4, "a duplicate")
    execute(connection, "DELETE FROM public.exact")
    repair(connection, "shop", "deleted by mistake")
    assert metrics(connection)["rows_committed"] == 2 * ROW_LENGTH
    assert counted() == {(2 * ROW_LENGTH, 0)}
    roll_back(connection, "shop", 0, "all of it was wrong")
    assert metrics(connection)["rows_committed"] == 0
    assert counted() == {(2 * ROW_LENGTH, 1)}


@pytest.fixture
def monitor(connection):
    """A role that may read the views and nothing else."""
    name = connection.one(SQL("SELECT current_database() AS name"))["name"]
    run_as_admin("DROP ROLE IF EXISTS monitor", "CREATE ROLE monitor LOGIN")
    run_as_admin(
        "GRANT USAGE ON SCHEMA reliability TO monitor",
        "GRANT SELECT ON reliability.metrics, reliability.commits_by_minute,"
        " reliability.commits_by_hour TO monitor",
        database=name,
    )
    yield name
    run_as_admin("DROP OWNED BY monitor", database=name)
    run_as_admin("DROP ROLE monitor")


def test_a_role_that_may_read_the_views_alone_sees_all_of_them(shop, monitor):
    with admin_session(monitor) as cursor:
        cursor.execute("SET ROLE monitor")
        for view in ("metrics", "commits_by_minute", "commits_by_hour"):
            cursor.execute(f"SELECT * FROM reliability.{view}")
            assert cursor.fetchall(), view
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("SELECT FROM reliability.topology")


def test_any_client_can_read_them_and_a_database_that_only_takes_part_has_none(shop, connection):
    """Grafana's session has none of this package's settings."""
    execute(
        connection,
        "INSERT INTO reliability.topology (topology, participant, max_spout_pending)"
        " VALUES ('theirs', 'warehouse', 1)",
    )
    with (
        closing(psycopg2.connect(connection.dsn)) as plain,
        plain.cursor(cursor_factory=RealDictCursor) as cursor,
    ):
        cursor.execute("SELECT * FROM reliability.metrics")
        [found] = cursor.fetchall()
        assert (found["topology"], found["commits"]) == ("shop", 2)
