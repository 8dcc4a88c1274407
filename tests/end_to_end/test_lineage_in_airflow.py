"""What a running Airflow tells a lineage catalogue: the provider's file transport."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.end_to_end.dates import scheduled, story

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@story(scheduled, "traced", "2026-01-01/a man dog man")
def test_a_run_is_told_with_its_attempt_its_sources_and_its_tables(dates, dag):
    """Events come from the worker, with the facets and datasets that docs/monitoring.md names."""
    assert dag.states() == ["success"]

    told = events(dates.folder / "lineage")
    ended = {
        one["job"]["name"].removeprefix("words_traced."): one
        for one in told
        if one["eventType"] == "COMPLETE"
    }
    assert set(ended) >= {"emit", "transaction.process", "transaction.commit"}
    emission = ended["emit"]["run"]["facets"]["reliability_emission"]
    assert (emission["topology"], emission["txids"]) == ("words_traced", "1")
    commit = ended["transaction.commit"]
    transaction = commit["run"]["facets"]["reliability_transaction"]
    assert {name: transaction[name] for name in ("attempt", "status", "commit_number", "rows")} == {
        "attempt": "1:0",
        "status": "COMMITTED",
        "commit_number": 1,
        "rows": 3,
    }
    [source] = commit["inputs"]
    assert source["namespace"] == "file"
    assert source["name"].endswith("/words_traced/2026-01-01")
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 3
    [table] = commit["outputs"]
    assert table["name"] == "reliability.public.words_traced"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert not [one for one in told if "words_traced" not in one["job"]["name"]]


def events(path: Any) -> list[dict[str, Any]]:
    """Return the events in the order in which they were told."""
    return [json.loads(line) for line in path.read_text().splitlines()]
