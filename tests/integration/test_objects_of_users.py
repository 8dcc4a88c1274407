"""What users add to a target keeps working: indexes, foreign keys, triggers, grants, views."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

from reliability.core.errors import LedgerCorruption, ReliabilityError, UnexpectedAnswer
from reliability.states import attempt_table
from reliability.transaction.correct.rollback import roll_back
from tests.replay.shop import Shop, made
from tests.support.fix_postgres import own_session, rows, run_as_admin

TARGETS = ("newest", "log")
ADDED = """
    CREATE TABLE word (word text PRIMARY KEY);
    INSERT INTO word VALUES ('a'), ('b'), ('c');
    CREATE TABLE audit (target text, operation text, txid bigint);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
    BEGIN
        INSERT INTO audit VALUES (TG_TABLE_NAME, TG_OP, coalesce(NEW._txid, OLD._txid));
        RETURN NULL;
    END $$;
"""
ADDED_TO_EACH = """
    CREATE INDEX {0}_by_price ON {0} (price) INCLUDE (word);
    ALTER TABLE {0} ADD CONSTRAINT {0}_known FOREIGN KEY (word) REFERENCES word;
    CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {0}
        FOR EACH ROW EXECUTE FUNCTION note();
    CREATE VIEW {0}_report AS SELECT word, count(*) AS n FROM {0} GROUP BY word;
"""


def as_user(connection, statements):
    """Run statements in a session of a user's own."""
    with closing(own_session(connection.dsn)) as session, session, session.cursor() as cursor:
        cursor.execute(statements)


@pytest.fixture
def shop(connection, monkeypatch):
    """Two txids: the first is committed, then users add what is theirs, then the second."""
    monkeypatch.setattr(attempt_table, "MIN_ROWS", 1)
    shop = Shop(connection)
    shop.deliver(made(1), made(2))
    shop.transact(1)
    as_user(connection, ADDED + "".join(ADDED_TO_EACH.format(target) for target in TARGETS))
    shop.transact(2)
    return shop


def test_a_trigger_without_a_path_of_its_own_names_schemas_or_is_refused(shop, connection):
    """S4: the error says what to do."""
    as_user(connection, "ALTER FUNCTION note() RESET search_path")
    with pytest.raises(UnexpectedAnswer, match='"audit" does not exist') as raised:
        shop.correct(2, made(7))
    assert "ALTER FUNCTION … SET search_path" in str(raised.value)
    as_user(connection, "ALTER FUNCTION note() SET search_path = public")
    assert shop.correct(2, made(7))


def test_triggers_views_and_indexes_follow_a_commit_a_replay_and_a_rollback(shop, connection):
    asked = "SELECT target, operation, txid, count(*) FROM audit GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    assert ("log", "INSERT", 2, 6) in rows(connection, asked)
    assert {row[0] for row in rows(connection, asked)} == set(TARGETS)
    shop.correct(2, made(7))
    assert ("log", "DELETE", 2, 6) in rows(connection, asked)
    assert ("log", "INSERT", 2, 12) in rows(connection, asked)
    for target in TARGETS:  # a view and an index follow
        counted = f"SELECT word, count(*) FROM {target} GROUP BY 1 ORDER BY 1"
        report = rows(connection, f"SELECT * FROM {target}_report ORDER BY 1")
        assert report == rows(connection, counted)
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = %(name)s::regclass"
        assert rows(connection, valid, name=f"{target}_by_price") == [(True,)]
    roll_back(connection, "shop", 1, "a test")
    assert ("log", "DELETE", 2, 12) in rows(connection, asked)


def test_a_foreign_key_refuses_a_commit_which_succeeds_once_it_fits(shop, connection):
    shop.deliver([{**row, "word": "new"} for row in made(3)])
    before = shop.tables()
    with pytest.raises(ReliabilityError, match="_known"):
        shop.transact(3)
    assert shop.tables() == before
    as_user(connection, "INSERT INTO word VALUES ('new')")
    shop.replay(3)
    assert rows(connection, "SELECT count(*) FROM log WHERE word = 'new'") == [(6,)]


def test_a_reader_needs_only_select_on_the_target(shop, connection):
    run_as_admin("DROP ROLE IF EXISTS analyst", "CREATE ROLE analyst")
    targets = [*TARGETS, "viewed"]
    try:
        as_user(connection, f"GRANT SELECT ON {', '.join(targets)} TO analyst")
        shop.correct(2, made(9))
        run_as_admin("GRANT analyst TO reliability")
        with closing(own_session(connection.dsn)) as session, session.cursor() as cursor:
            cursor.execute("SET ROLE analyst")
            for target in targets:
                cursor.execute(f"SELECT count(*) FROM {target}")
                assert cursor.fetchall()[0][0] > 0
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute("SELECT * FROM reliability.contribution")
    finally:
        as_user(connection, "DROP OWNED BY analyst")
        run_as_admin("DROP ROLE analyst")


KEPT_BACK = """
    CREATE FUNCTION public.keep_back() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF coalesce(NEW.word, OLD.word) = 'b' THEN RETURN NULL; END IF;
        RETURN coalesce(NEW, OLD);
    END $$;
"""


def test_a_commit_is_refused_when_a_trigger_keeps_an_appended_row_back(
    shop, connection, monkeypatch
):
    """G5: the row was staged, and would be neither in the target nor anywhere else."""
    as_user(connection, KEPT_BACK)
    for txid, min_rows in ((3, 1), (4, 1000)):  # its own table, a shared table
        monkeypatch.setattr(attempt_table, "MIN_ROWS", min_rows)
        as_user(
            connection,
            "CREATE TRIGGER g BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION keep_back()",
        )
        shop.deliver(made(txid))
        before = shop.tables()
        refused = r"public\.log: \d rows .* 6; a trigger or a rule"
        with pytest.raises(ReliabilityError, match=refused):
            shop.transact(txid)
        assert shop.tables() == before
        as_user(connection, "DROP TRIGGER g ON log")
        shop.replay(txid)
        assert rows(connection, f"SELECT count(*) FROM log WHERE _txid = {txid}") == [(6,)]


def test_a_commit_that_a_trigger_keeps_rows_of_back_names_the_trigger(shop, connection):
    """It said that the rows were newer than the txid, and to leave the database as it is."""
    on_write = "CREATE TRIGGER g BEFORE INSERT OR UPDATE ON exact FOR EACH ROW"
    as_user(connection, f"{KEPT_BACK} {on_write} EXECUTE FUNCTION keep_back()")
    shop.deliver(made(3))
    with pytest.raises(LedgerCorruption, match="a trigger or a rule that keeps rows back"):
        shop.transact(3)


def test_a_rollback_is_refused_when_a_trigger_keeps_a_row_from_being_deleted(shop, connection):
    """G5: it reported success, and left rows that no contribution explains."""
    as_user(connection, KEPT_BACK)
    before = shop.tables()
    targets = ("log", "exact", "recomputed")
    for target in targets:
        on_delete = f"CREATE TRIGGER g BEFORE DELETE ON {target} FOR EACH ROW"
        as_user(connection, f"{on_delete} EXECUTE FUNCTION keep_back()")
        if target == "log":
            with pytest.raises(UnexpectedAnswer, match=r"public\.log: .* keeps rows back"):
                shop.correct(1, made(3))
        with pytest.raises(UnexpectedAnswer, match=f"public.{target}: .* keeps rows back"):
            roll_back(connection, "shop", 0, "a test")
        assert shop.tables() == before
        as_user(connection, f"DROP TRIGGER g ON {target}")
    roll_back(connection, "shop", 0, "a test")
    for target in targets:
        assert rows(connection, f"SELECT count(*) FROM {target}") == [(0,)]
