"""What a task that commits tells of the assets of its states: only what counts."""

from __future__ import annotations

import pytest

from reliability.transaction.correct.park import skip
from tests.replay.shop import ROW_LENGTH, made
from tests.support.commit_task import CommitTask, shop_with_two_txids


@pytest.fixture
def shop(airflow_home, connection, monkeypatch):
    return shop_with_two_txids(connection, monkeypatch)


@pytest.fixture
def told(shop, monkeypatch):
    """Run the task that commits a txid, and return what it has told, by asset."""
    task = CommitTask(shop, monkeypatch)

    def run(*arguments, **options):
        task.run(*arguments, **options)
        return task.context["outlet_events"].told

    return run


def test_a_commit_updates_each_state_and_a_replay_tells_the_difference(shop, told):
    first = told(1)
    assert set(first) == {f"shop/{state.name}" for state in shop.topology.states}
    assert first["shop/log"] == [
        {
            "topology": "shop",
            "txid": 1,
            "attempt": "1:0",
            "commit_number": 1,
            "rows": ROW_LENGTH,
            "difference": None,
        }
    ]
    assert told(1) == first  # a retry: its first try may have ended before it was told
    shop.makes[1] = made(101)
    replayed = told(1, max_tries=5)
    assert "shop/all_of_it" not in replayed  # the same rows as before
    [again] = replayed["shop/exact"]
    assert (again["attempt"], again["commit_number"]) == ("1:1", 2)
    difference = again["difference"]
    assert difference.keys() == {"rows_added", "rows_changed", "rows_removed", "moved"}
    assert (difference["rows_added"], difference["rows_changed"]) == (4, 1)


def test_what_does_not_count_updates_nothing(shop, told, connection):
    """A dry run is a success of its task, and so is a txid that a person has skipped."""
    told(1)
    shop.makes[1] = made(101)
    assert told(1, max_tries=5, dry_run=True) == {}
    skip(connection, "shop", 2, "a broken file", by="ann")
    assert told(2) == {}
