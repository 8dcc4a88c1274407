"""What is asked of Airflow's REST API."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from reliability.core.errors import NotPossible
from reliability.deployment.airflow_api import PAGE, Airflow


@pytest.mark.parametrize("most", [PAGE, 50, 1])  # [api] maximum_page_limit
@pytest.mark.parametrize("number", [0, 7, PAGE, 2 * PAGE])
def test_all_pages_are_read_however_few_rows_airflow_gives_at_once(monkeypatch, most, number):
    """With fewer than were asked for, the first page was taken for the last."""
    rows = [{"task_id": f"task {n}", "map_index": -1, "state": None} for n in range(number)]

    def ask(self, method, path):
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        first, limit = int(query["offset"]), min(int(query["limit"]), most)
        return {"task_instances": rows[first : first + limit], "total_entries": number}

    monkeypatch.setattr(Airflow, "_ask", ask)
    found = Airflow(url="http://localhost", token="").tasks("shop", "run")
    assert [one.task_id for one in found] == [row["task_id"] for row in rows]


@pytest.mark.parametrize("token", [b"two\nlines", b"\xff\xfet\x00"])
def test_what_no_header_may_have_is_no_token(monkeypatch, tmp_path, token):
    """Airflow was said not to answer as Airflow does."""
    (tmp_path / "token").write_bytes(token)
    monkeypatch.delenv("RELIABILITY_AIRFLOW_TOKEN", raising=False)
    monkeypatch.setenv("RELIABILITY_AIRFLOW_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(NotPossible, match="TOKEN_FILE"):
        Airflow.of("http://localhost")
