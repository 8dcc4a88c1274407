"""The loader of named SQL, and the house rules for what it loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reliability.ledger.migrations import migrations
from reliability.ledger.queries import queries, split_queries, sql_folder


def test_split():
    text = "-- one --\n-- why\nSELECT 1;\n\n-- two --\nSELECT 2\n"
    assert split_queries(text) == {"one": "-- why\nSELECT 1", "two": "SELECT 2"}


def test_a_name_given_twice_is_an_error():
    with pytest.raises(ValueError, match="duplicate"):
        split_queries("-- one --\nSELECT 1;\n-- one --\nSELECT 2;\n")


def test_every_update_and_delete_says_what_it_expects():
    for name, statement in queries().items():
        if re.search(r"^(UPDATE|DELETE)", statement, re.MULTILINE):
            assert " WHERE " in statement or "\n WHERE" in statement, name


def test_every_statement_has_a_description():
    for name, statement in queries().items():
        assert statement.startswith("-- "), name


@pytest.mark.parametrize("file", sorted(sql_folder().rglob("*.sql")), ids=lambda file: file.name)
def test_a_session_of_any_encoding_can_send_the_statements(file):
    """migrate runs before a session's encoding is known to be one that holds more."""
    assert file.read_text(encoding="utf-8").isascii()


@pytest.mark.parametrize("file", sorted(sql_folder().rglob("*.sql")), ids=lambda file: file.name)
def test_a_backslash_means_the_same_whatever_a_server_s_settings_are(file):
    """An erasure left e-mail addresses, with standard_conforming_strings off."""
    own = re.sub(r"--.*|\bE'[^']*'", "", file.read_text(encoding="utf-8"))
    assert "\\" not in own or "SET standard_conforming_strings = on" in own


@pytest.mark.parametrize("name", ["1_short.sql", "0001-dash.sql"])
def test_a_badly_named_migration_is_an_error(tmp_path, name):
    (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(ValueError, match="NNNN"):
        migrations(tmp_path)


def test_a_gap_between_migrations_is_an_error(tmp_path):
    for number in (1, 3):
        (tmp_path / f"{number:04d}_x.sql").write_text("SELECT 1")
    with pytest.raises(ValueError, match="1, 2, 3"):
        migrations(tmp_path)


def test_the_migrations_of_this_release_are_well_formed():
    assert [m.number for m in migrations()] == list(range(1, len(migrations()) + 1))


def test_no_sql_stands_in_python_outside_its_one_place():
    """SQL lies in sql/; the package states composes what the user's columns need."""
    root = Path(__file__).resolve().parents[2]
    sql = re.compile(r"\b(SELECT .* FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM)\b")
    found = [
        str(path.relative_to(root))
        for folder in ("reliability", "plugins", "spark_apps", "dags")
        for path in (root / folder).rglob("*.py")
        if sql.search(path.read_text())
    ]
    assert {str(Path(path).parent) for path in found} == {
        "reliability/states",
        "reliability/states/kinds",
    }
