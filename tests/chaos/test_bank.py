"""What `make chaos` compares with, and what its readers take for wrong."""

from __future__ import annotations

import random

import pytest

from tests.chaos.bank import SUSPECT, Row, deliver, expected
from tests.support.money import is_sound


def test_money_is_moved_and_never_made(tmp_path):
    rng = random.Random(1)
    files = [file for n in range(20) for file in deliver(tmp_path, n, rng).values()]
    tables = expected(files)
    for name in ("balance", "seen", "mart_moved"):
        assert sum(row[1] * times for row, times in tables[name].items()) == 0
    moves = sum(row[2] for row in tables["balance"])
    assert moves == sum(tables["seen"].values()) == sum(row[2] for row in tables["last"])
    rows = [row for file in files for row in file]
    assert moves == len([row for row in rows if row.number % SUSPECT]) < len(rows)
    assert len({(row.account, row.number) for row in rows}) == len(rows)


def test_the_expected_tables_are_what_a_person_would_write_down():
    files = [[Row("ann", -5, 1), Row("bob", 5, 1)], [Row("bob", -2, 1001), Row("ann", 2, 1001)]]
    tables = expected([*files, [Row("ann", -9, 2 * SUSPECT), Row("bob", 9, 2 * SUSPECT)]])
    assert tables["balance"] == {("ann", -3, 2): 1, ("bob", 3, 2): 1}
    assert tables["last"] == {("ann", 2, 2): 1, ("bob", -2, 2): 1}
    assert tables["seen"][("bob", 5, 1)] == 1
    assert tables["quarantine"] == {("ann", -9, 2 * SUSPECT): 1, ("bob", 9, 2 * SUSPECT): 1}


@pytest.mark.parametrize("row", [(1, 8, 8, 8), (0, 8, 8, 6), (0, 8, 6, 8), (1, 8, 8), (0, 8, 6)])
def test_a_reader_finds_made_money_and_a_table_that_is_behind(row):
    assert not is_sound(row)
    assert is_sound((0, 8, 8, 8))
