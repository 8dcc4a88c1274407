"""The ledger's schema is upgraded by one more file; nothing else can change it."""

from __future__ import annotations

import shutil
import time

import pytest
from psycopg2.sql import SQL

from reliability import Count, MemorySpout, State, Topology
from reliability.core.errors import (
    SOON_MENDED,
    LedgerBusy,
    LedgerNotMigrated,
    LedgerTooNew,
    LedgerTooOld,
    MigrationChanged,
)
from reliability.ledger import migrations as module
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.migrations import check_migrated, migrate, migrations, missing_migrations
from reliability.ledger.queries import sql_folder
from reliability.transaction.topology.databases import open_ledger
from tests.support.command_line import say
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import execute, rows

# What a later release may need: a column that old rows have too, by their data, and another rule.
NEXT = """
ALTER TABLE reliability.topology ADD COLUMN most_spouts integer;
UPDATE reliability.topology SET most_spouts = max_spout_pending * 2;
ALTER TABLE reliability.topology
    ALTER COLUMN most_spouts SET NOT NULL,
    ADD CONSTRAINT most_spouts_cover_the_pending CHECK (most_spouts >= max_spout_pending);

CREATE OR REPLACE FUNCTION reliability.open_checkpoint() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO reliability.checkpoint (topology, commit_number, epoch)
    VALUES (NEW.topology, NEW.commit_number, 7);
    RETURN NULL;
END $$;
"""
DECLARE = "INSERT INTO reliability.topology (topology, max_spout_pending) VALUES ('old', 5)"
DECLARE_NEXT = (
    "INSERT INTO reliability.topology (topology, max_spout_pending, most_spouts)"
    " VALUES ('new', 1, 1)"
)


@pytest.fixture
def add_migration(tmp_path):
    """Return what adds a file to the migrations of a made-up later release, after today's."""
    folder = tmp_path / "migrations"
    shutil.copytree(sql_folder() / "migrations", folder)

    def add(name, text):
        number = len(list(folder.iterdir())) + 1
        (folder / f"{number:04d}_{name}.sql").write_text(text)
        return folder

    return add


@pytest.fixture
def next_release(add_migration):
    """The migrations of a made-up later release: all of today's, and one more."""
    return add_migration("most_spouts", NEXT)


def test_a_later_release_upgrades_a_ledger_with_data_in_it_and_works_with_no_other(
    connection, next_release, monkeypatch
):
    execute(connection, DECLARE)
    known = migrations(next_release)
    with monkeypatch.context() as patch:
        patch.setattr(module, "migrations", lambda: known)
        for check in (check_migrated, lambda _: open_ledger("a test")):
            with pytest.raises(LedgerNotMigrated, match=f"migration {known[-1].number}"):
                check(connection)
    assert migrate(connection, known) == known[-1:]
    assert migrate(connection, known) == []
    recorded = "SELECT checksum FROM reliability.migration ORDER BY number DESC LIMIT 1"
    assert rows(connection, recorded) == [(known[-1].checksum,)]
    execute(connection, DECLARE_NEXT)
    kept = (
        "SELECT topology, most_spouts, epoch FROM reliability.topology JOIN reliability.checkpoint"
    )
    assert rows(connection, f"{kept} USING (topology) ORDER BY 1 DESC") == [
        ("old", 10, 0),
        ("new", 1, 7),
    ]
    with pytest.raises(LedgerTooNew, match=f"migration {known[-1].number}"):
        check_migrated(connection)  # by the release of today
    with pytest.raises(LedgerTooNew):
        migrate(connection)


# --- releases that overlap -----------------------------------------------------------------------

TODAY = len(migrations())
EXPAND = f"""-- Code that knows migration {TODAY:04d} goes on.
ALTER TABLE reliability.topology ADD COLUMN colour text;
"""


def test_todays_code_works_with_the_ledger_of_the_next_release(connection, add_migration):
    """S7: a rolling deploy turned every task red that still ran the old release."""
    known = migrations(add_migration("colour", EXPAND))
    assert [str(one) for one in migrate(connection, known)] == [f"{TODAY + 1:04d}_colour"]
    check_migrated(connection)
    assert migrate(connection) == []
    topology = Topology(
        "shop",
        spout=MemorySpout({"word": "string"}, [["a", "b"]], take=2),
        process=lambda batch: {"words": batch},
        states=[State("words", key={"word": "text"}, values={"times": Count()})],
    )
    pipeline_of(topology, connection).take_in().replay(1)
    asked = "SELECT kind, status FROM reliability.request ORDER BY number"
    assert rows(connection, asked) == [("COMMIT", "SATISFIED"), ("REPLAY", "SATISFIED")]


def test_a_migration_that_contracts_names_the_code_that_it_needs(connection, add_migration):
    """S7: expand, and contract one release later: the release between goes on, today's does not."""
    add_migration("colour", EXPAND)
    removes = f"-- Code that knows migration {TODAY + 1:04d} goes on.\nSELECT 1;"
    folder = add_migration("removes", removes)
    migrate(connection, migrations(folder))
    with pytest.raises(LedgerTooNew, match=f"needs code that knows migration {TODAY + 1}; "):
        check_migrated(connection)
    assert missing_migrations(connection, migrations(folder)[:-1]) == []  # the one between
    assert issubclass(LedgerTooNew, SOON_MENDED)


def test_a_migration_waits_behind_nobody_for_long(connection, dsn, add_migration, monkeypatch):
    """S7: behind a statement that waits for a lock, all others wait."""
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(module, "MOST_TRIES", 2)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.1)
    known = migrations(add_migration("colour", EXPAND))
    with LedgerConnection(dsn) as reader, reader.transaction() as tx:
        tx.all(SQL("SELECT FROM reliability.topology"))
        started = time.monotonic()
        with pytest.raises(LedgerBusy):
            migrate(connection, known)
        assert time.monotonic() - started < 8
    assert migrate(connection, known) == known[-1:]


def test_what_is_missing_is_said_before_it_is_applied(connection):
    assert "up to date" in say("migrate", "--check").stdout
    execute(connection, "DELETE FROM reliability.migration WHERE number = %(last)s", last=TODAY)
    checked = say("migrate", "--check", code=3)
    last = migrations()[-1]
    assert f"missing {last}: code that does not know it stops" in checked.stdout
    with pytest.raises(LedgerTooOld, match=f"migration {TODAY}"):
        check_migrated(connection)


def test_a_file_that_changes_after_it_was_applied_is_refused(connection, next_release, monkeypatch):
    migrate(connection, migrations(next_release))
    for place in (0, -1):
        changed = sorted(next_release.glob("*.sql"))[place]
        before = changed.read_text()
        changed.write_text(before + "-- said otherwise\n")
        known = migrations(next_release)
        changed.write_text(before)
        monkeypatch.setattr(module, "migrations", lambda known=known: known)
        for check in (lambda ledger, known=known: migrate(ledger, known), check_migrated):
            with pytest.raises(MigrationChanged, match=changed.stem):
                check(connection)


def test_an_upgrade_that_fails_leaves_the_ledger_as_it_was(connection, next_release):
    execute(connection, DECLARE)
    sorted(next_release.glob("*.sql"))[-1].write_text(f"{NEXT}\nSELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        migrate(connection, migrations(next_release))
    check_migrated(connection)
    execute(connection, "UPDATE reliability.topology SET max_spout_pending = 6")
    assert rows(connection, "SELECT FROM pg_attribute WHERE attname = 'most_spouts'") == []


def test_a_release_that_lacks_a_file_in_between_changes_nothing(next_release):
    sorted(next_release.glob("*.sql"))[-2].unlink()
    with pytest.raises(ValueError, match="1, 2, 3"):
        migrations(next_release)
