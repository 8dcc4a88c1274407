"""The Grafana dashboard: its queries run as a role that has what docs/monitoring.md grants."""

from __future__ import annotations

import json
import re

import pytest

from tests.replay.shop import Shop, made
from tests.support.fix_postgres import ROOT, admin_session, run_as_admin

DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "reliability.json").read_text())
PANELS = DASHBOARD["panels"]
VARIABLES = DASHBOARD["templating"]["list"]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
TIME_FILTER = r"\$__timeFilter\((\w+)\)"
RANGE = r"\1 BETWEEN now() - interval '6 hours' AND now()"


@pytest.fixture
def grafana(connection):
    """A session with the grants of the docs, on a ledger where something of everything happens."""
    shop = Shop(connection)
    shop.commit(made(1), made(2))
    shop.deliver(made(3))
    with connection.transaction() as tx:
        tx.cursor.execute(
            "UPDATE reliability.request SET status = 'CLOSED', ended_at = now()"
            " WHERE status = 'OPEN';"
            "UPDATE reliability.attempt SET status = 'FAILED', reason_code = 'X', reason = 'x'"
            " WHERE txid = 2"
        )
        tx.cursor.execute("SELECT current_database() AS name")
        [name] = tx.cursor.fetchall()
    [grants] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    run_as_admin("DROP ROLE IF EXISTS monitor")
    with admin_session(name["name"]) as cursor:
        cursor.execute(grants)
        cursor.execute("SET ROLE monitor")
        yield cursor
        cursor.execute("RESET ROLE; DROP OWNED BY monitor; DROP ROLE monitor")


def ask(grafana, query):
    """Run a query as Grafana would write it out for the only topology."""
    written = re.sub(TIME_FILTER, RANGE, query).replace("$topology", "'shop'")
    assert "$" not in written, written
    grafana.execute(written)
    return [column.name for column in grafana.description], grafana.fetchall()


def test_grafana_knows_every_field_of_the_dashboard():
    """What Grafana's own model of a dashboard reads and writes again is the whole file."""
    pytest.importorskip("grafana_foundation_sdk")  # it needs Python 3.11
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    read = json.loads(json.dumps(Dashboard.from_json(DASHBOARD), cls=JSONEncoder))
    assert list(lost(DASHBOARD, read)) == []


def lost(written, read, place=""):
    """Yield the places whose value is not what it was; defaults may be added."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            yield from lost(value, read.get(name), f"{place}/{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from lost(one, other, f"{place}/{number}")
    elif written != read:
        yield f"{place}: {written!r} became {read!r}"


def test_every_query_of_the_dashboard_finds_something(grafana):
    empty = {"Replays and rollbacks an hour"}
    shown = {}
    for panel in PANELS:
        [target] = panel["targets"]
        columns, found = ask(grafana, target["rawSql"])
        assert found or panel["title"] in empty, panel["title"]
        if target["format"] == "time_series":
            assert columns == ["time", "metric", "value"], panel["title"]
        if panel["type"] == "stat":
            shown[panel["title"]] = found
    assert ask(grafana, VARIABLES[1]["query"])[1] == [("shop",)]
    assert shown["Blocked"] == [(1,)]
    assert shown["Held"] == shown["Paused"] == shown["Quarantined rows"] == [(0,)]
    assert shown["Failed or fenced, last hour"] == [(1,)]


def test_panels_have_a_place_of_their_own():
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_dashboard_names_no_data_source_of_its_own():
    sources = [panel["datasource"]["uid"] for panel in PANELS]
    sources += [target["datasource"]["uid"] for panel in PANELS for target in panel["targets"]]
    assert set(sources) == {"${datasource}"}
    assert [variable["name"] for variable in VARIABLES] == ["datasource", "topology"]
