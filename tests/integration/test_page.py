"""The page in Airflow's UI, on a real ledger; only Airflow's login is left out."""

from __future__ import annotations

import html
import json
import re
import timeit
from functools import partial
from html.parser import HTMLParser
from itertools import product
from types import SimpleNamespace
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from reliability.ledger.connection import DatabaseTransaction
from reliability.transaction.correct.park import skip
from reliability.transaction.emit.requests import Run
from reliability.transaction.topology.lifecycle import pause
from tests.replay.shop import made
from tests.support.command_line import say
from tests.support.fix_page import (
    FROM_THE_PAGE,
    LONG,
    TOPOLOGIES,
    TXIDS,
    Person,
    airflow_with_page,
    shop_named,
)
from tests.support.fix_postgres import database_of, execute, new_session
from tests.support.fix_shop import shop_with
from tests.support.processor import slowness

pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx`")
SECONDS = 0.5  # for each view, however long the history: what grows with it shows


@pytest.fixture(scope="module")
def airflow(airflow_home, rights_of_module):
    """The page: made once, as it keeps nothing."""
    with airflow_with_page(rights_of_module) as app:
        yield app


@pytest.fixture
def client(airflow, rights):
    """A browser of a person who is logged in."""
    from fastapi.testclient import TestClient

    return TestClient(airflow, follow_redirects=False, headers={"Accept": "text/html"})


@pytest.fixture
def long(long_ledger, monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", long_ledger)


# Five txids of a topology, three of which have committed; the test has them for itself.
origin, shop = shop_with(3, 4, 5, make=lambda connection: shop_named(connection, "shop"))


def at(topology, path=""):
    return f"/reliability/dags/{quote(topology, safe='')}{path}"


def views(topology, txid):
    """Return the address of each view of a topology with intervals that has this last txid."""
    return [
        "/reliability/",
        at(topology),
        at(topology, f"?last={max(txid // 2, 1)}&size=200"),
        at(topology, "/series"),
        at(topology, "/calendar"),
        at(topology, "/explain"),
        at(topology, "/explain?state=totals&key.customer_id=1"),
        at(topology, f"/runs?run_id=run+{txid}"),
        *([at(topology, f"/txids/{txid}")] if txid else []),
    ]


class Text(HTMLParser):
    """What a page says, and its elements."""

    def __init__(self, source):
        super().__init__()
        self.said, self.elements = [], []
        self.feed(source)

    def handle_data(self, data):
        self.said.append(data)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))


def read(client, path, status=200):
    """Return what a page says, in one line."""
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    return " ".join("".join(Text(answer.text).said).split())


# --- why a txid waits ----------------------------------------------------------------------------


def test_everybody_says_why_a_txid_waits_as_its_log_does(client, shop, connection, monkeypatch):
    """K1: `status`, `lag`, `txids`, `show` and the page said "waits to begin", not behind whom."""
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)
    execute(connection, ONE_AT_ONCE)
    shop.begin(4)
    reason = "behind 4: at most 1 at once (max_spout_pending)"
    assert str(waiting(shop, 5)) == reason
    for said in (
        command("status"),
        command("watch", "--once"),
        command("lag"),
        command("txids", "shop"),
        command("show", "shop", "5"),
        read(client, "/reliability/"),
        read(client, at("shop")),
        read(client, at("shop", "/txids/5")),
        read(client, at("shop", f"/runs?run_id={quote(shop.run_of(5).run_id)}")),
    ):
        assert f"waits {reason}" in said
    assert f'title="waits {reason}"' in html.unescape(client.get(at("shop")).text)
    (one,) = json.loads(command("status", "--json"))
    text = f"txid 5 waits {reason}"
    why = {"for": "place", "behind": "4", "most": 1, "blocked": None, "text": text}
    assert one["waiting"] == [{"txids": "5", "are_replays": False, **why}]

    shop.clear(1, 2)
    shop.begin(1)
    reason = "behind the replay of 1: at most 1 at once (max_replay_pending)"
    assert str(waiting(shop, 2)) == reason
    for said in (
        command("status"),
        command("txids", "shop"),
        command("show", "shop", "2"),
        read(client, "/reliability/"),
        read(client, at("shop", "/txids/2")),
    ):
        assert f"waits {reason}" in said
    assert "the replay of txid 2 waits" in command("status")


ONE_AT_ONCE = "UPDATE reliability.topology SET max_spout_pending = 1, max_replay_pending = 1"


def waiting(shop, txid):
    """Let a txid's task look, and return why it waits."""
    request_id = shop.runner.contact(txid, shop.who(txid)).request_id
    return shop.runner.next_action(txid, request_id, shop.topology.work("commit"))


def command(*arguments):
    return say(*arguments).stdout


# --- what is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize("txids", TOPOLOGIES)
def test_every_view_shows_any_number_of_txids(client, full, txids):
    for path in views(TOPOLOGIES[txids], txids):
        if not path.endswith("/series"):
            assert TOPOLOGIES[txids] in read(client, path)
    plotted = client.get(at(TOPOLOGIES[txids], "/series")).json()
    assert plotted["txid"] == list(range(1, txids + 1))
    assert {len(column) for column in plotted.values()} == {txids}


def test_the_list_has_the_topologies_that_the_person_may_read(
    client, full, rights, ledgers, monkeypatch
):
    said = read(client, "/reliability/")
    assert "36 of 36" in said
    assert "paused: the disk is full" in said
    assert "more topolog" not in said
    rights.readable = {"many", "nosuch"}
    said = read(client, "/reliability/")
    assert "many" in said
    assert "the disk is full" not in said
    assert "4 more topologies have no DAG that you may read." in said
    monkeypatch.setenv("RELIABILITY_DSN", ledgers.empty)
    assert "No topology yet." in read(client, "/reliability/")


def test_all_that_can_become_of_a_txid(client, full):
    said = read(client, at("rich"))
    for what in (
        *("committed", "replayed", "parked", "skipped", "held", "attempts"),
        *("paused: the disk is full", "rolled back to txid 4", "a wrong price list"),
        "9 was wrong",
    ):
        assert what in said, what
    marks = {*re.findall(r'class="mark ([a-z-]+)"', client.get(at("rich")).text)}
    assert marks == {"replay", "dry-run", "failed", "fenced", "rolled-back", "parked", "skipped"}


TOLD = {
    1: ("1:2", "It replaced 1:1: code not known, the same batch", "What it changed"),
    2: ("dry run", "would have changed", "division by zero", "no negative price", '{"price": -1}',
        "exact: every key once ✓passed", "exact: later ·no result",
        "In quarantine", "a.csv4", "quarantine export rich 2",
        "2 dropped: no customer", "1 quarantined: no price", "was tried and changed nothing"),
    3: ("SOURCE_CHANGED", "refrozen: a corrected delivery", "failed"),
    4: ("was fenced", "memory:3:0"),
    5: ("rolled back as c=", "a wrong price list", "committed"),
    6: ("parked", "its file is broken", "Roll back to here"),
    7: ("skipped by zoe", "a duplicate of 6"),
    9: ("held", "9 was wrong", "not yet", "Park"),
}  # fmt: skip


def test_the_story_of_a_txid(client, full):
    for txid in range(1, 13):
        said = read(client, at("rich", f"/txids/{txid}"))
        for what in (f"Transaction {txid}", "emitted by run run 1", *TOLD.get(txid, ())):
            assert what in said, what


def test_a_spout_that_keeps_one_txid_and_a_calendar_without_intervals(client, full):
    assert "2 of 2" in read(client, at("opaque"))
    assert "committed" in read(client, at("opaque", "/txids/2"))
    said = read(client, at("opaque", "/explain?state=exact&key.k=1"))
    assert "state exact keeps no contributions" in said
    assert "No interval was emitted" in read(client, at("rich", "/calendar"))


def test_the_calendar_goes_back_by_pages(client, long):
    older = re.compile(r'href="(\?before=[^"]+)"')
    source = client.get(at(LONG, "/calendar")).text
    assert source.count('<a class="day good"') == 372
    assert "2020-02" in source
    (link,) = older.findall(source)
    again = client.get(at(LONG, f"/calendar{html.unescape(link)}")).text
    assert again.count('<a class="day good"') == 372
    assert older.findall(again) != [link]
    assert "No interval" in read(client, at(LONG, "/calendar?before=2019-01-01T00:00:00"))


def test_a_long_gap_of_days_leaves_the_calendar_by_month(client, full, connection, monkeypatch):
    """Days that are missing in a row are one sign, which is longer than a month."""
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)
    shop_named(connection, "shop").deliver(made(1))
    execute(connection, DAYS)
    source = client.get(at("shop", "/calendar")).text
    assert "missing, 58 intervals" in source
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", source) == ["2020-03", "2020-01"]
    execute(connection, "UPDATE reliability.schedule SET first_start = '2010-01-01 00:00+00'")
    assert "More intervals are missing" in read(client, at("shop", "/calendar"))
    assert "1,000 missing or more" in read(client, "/reliability/").partition("lack a commit")[0]


DAYS = """
    UPDATE reliability.transaction SET interval_start = '2020-03-01 00:00+00',
           interval_end = '2020-03-02 00:00+00';
    UPDATE reliability.emission SET interval_start = '2020-03-01 00:00+00',
           interval_end = '2020-03-02 00:00+00';
    INSERT INTO reliability.schedule (topology, dag_id, period, first_start, last_start, catchup)
    VALUES ('shop', 'shop', '1 day', '2020-01-03 00:00+00', '2020-03-01 00:00+00', true)
"""


# --- find ----------------------------------------------------------------------------------------


def test_pages_of_a_timeline(client, long):
    def txids_of(source):
        return re.findall(r"/txids/(\d+)", source)

    source = client.get(at(LONG)).text
    assert "Newer" not in source
    first = txids_of(source)
    assert (len(first), first[0]) == (20, str(TXIDS))
    (older,) = re.findall(r'href="(\?last=\d+&amp;size=20)#timeline">Older', source)
    second = client.get(at(LONG, html.unescape(older))).text
    assert txids_of(second)[0] == str(TXIDS - 20)
    assert f"?last={TXIDS}&amp;size=20" in second
    for query, shown in (("?size=200", 200), ("?size=7", 20)):
        assert len(txids_of(client.get(at(LONG, query)).text)) == shown
    end = client.get(at(LONG, "?last=3")).text
    assert txids_of(end) == ["3", "2", "1"]
    assert "Older" not in end
    assert txids_of(client.get(at(LONG, f"?last={10**30}")).text)[0] == str(TXIDS)
    assert client.get(at(LONG, "?last=-5")).status_code == 200


def test_a_person_jumps_to_or_chooses_txids_by_number_or_interval(client, full):
    for text, txid in (
        ("14", 14),
        (" 14 ", 14),
        ("2020-01", 36),
        ("2020-01-01T00:09:00+00:00", 9),
        ("12..14", 14),
    ):
        to = client.get(at("many", f"?to={quote(text)}&size=50"))
        place = f"{at('many')}?last={txid}&size=50#timeline"
        assert (to.status_code, to.headers["location"]) == (303, place)
    for text, txids in (
        ("7", "7"),
        (" 3, 5..6", "3,5..6"),
        ("2020-01-01T00:09", "9"),
        ("2020-01", "1..36"),
    ):
        chosen = client.get(at("many", f"/chosen?text={quote(text)}")).json()
        assert chosen == {"txids": txids, "dag_id": "many", "is_group": False}


def test_who_jumps_to_nothing_or_millions_hears_what_there_is(client, full):
    """A right to read was enough to take 290 MB of Airflow's web server for 5 s."""
    text = ",".join(f"{n}00001..{n + 1}00000" for n in range(40))
    for place in ("?to=", "/chosen?text="):
        assert "at most 100,000 txids at once" in read(client, at("many", f"{place}{text}"), 404)
    for text in ("37", "2019-12"):
        assert "the txids so far are 1..36" in read(client, at("many", f"?to={text}"), 404)
    for text in ("0", "nonsense", "²", "14,,15", "<b>", "9" * 400 + "x", "9" * 5000):
        said = read(client, at("many", f"?to={quote(text)}"), 404)
        assert "NOT_FOUND" in said
        assert "is neither a txid nor an interval. What to do: write a number" in said.replace(
            "interval What", "interval. What"
        )


def test_explain_takes_a_key_and_null_in_all_databases(client, full):
    said = read(client, at("rich", "/explain"))
    for state in ("exact", "recomputed", "log"):
        assert state in said
    said = read(client, at("rich", "/explain?state=recomputed&key.word=a"))
    assert "What made it" in said
    assert "1:2" in said
    path = at("rich", "/explain?state=exact&key.k=&null.k=on&key.word=a")
    said = read(client, path)
    assert "What made it" in said
    assert "No transaction has contributed" not in said
    assert 'name="null.k" checked' in client.get(path).text
    said = read(client, at("rich", "/explain?state=exact&key.k=77&key.word=a"))
    assert "No transaction has contributed to this row." in said
    assert "1:2" in read(client, at("rich", "/explain?state=log"))
    for query in ("state=nosuch", "state=exact&key.k=seven&key.word=a"):
        assert "✕" in read(client, at("rich", f"/explain?{query}"))


def test_a_run_leads_to_its_txids(client, full):
    said = read(client, at("many", "/runs?run_id=run+7"))
    assert "Run run 7" in said
    assert "satisfied" in said
    answer = client.get(at("many", "/runs?run_id=run+7&map_index=0"))
    assert answer.headers["location"] == at("many", "/txids/7")
    assert "asked for nothing yet" in read(client, at("many", "/runs?run_id=nosuch&map_index=4"))
    assert "What it changed" in read(client, at("rich", "/runs?run_id=run+1&map_index=-1"))


def test_a_run_of_many_txids_is_asked_for_in_one_go(client, connection, monkeypatch):
    """A run may have emitted hundreds, and its page is read again every two seconds."""
    asked = []
    run_all = DatabaseTransaction.all

    def counted(tx, statement, **parameters):
        asked.append(statement)
        return run_all(tx, statement, **parameters)

    shop = shop_named(connection, "shop")
    shop.commit(*(made(n) for n in range(1, 5)))
    for txid in range(1, 5):
        shop.correct(txid, made(100 + txid))
    monkeypatch.setattr(DatabaseTransaction, "all", counted)
    said = read(client, at("shop", "/runs?run_id=run+1"))
    assert said.count("log: 6 rows added, 6 rows removed") == 4
    assert len(asked) < 12, asked
    dry = Run(dag_id="shop", run_id="dry")
    shop.runner.emit(None, shop.who(1, dry, is_dry_run=True), max_batches=9, replay=[1, 2])
    for txid in (1, 2):
        shop.transact(txid, dry, is_dry_run=True)
    assert 'name="replay" value="1..2"' in client.get(at("shop", "/runs?run_id=dry")).text
    before = shop.ask("SELECT txid, attempt_id FROM reliability.attempt WHERE status = 'DRY_RUN'")
    shop.correct(1, made(300))
    with connection.transaction() as tx:
        found = tx.all("outcome_of_run", topology="shop", dag_id="shop", run_id="dry")
    assert [(row["txid"], row["attempt_id"]) for row in found] == sorted(
        before
    )  # not what a later run has changed


def test_a_plot_tells_the_first_commit_of_a_txid_and_no_rows_of_an_empty_one(client, connection):
    shop = shop_named(connection, "shop")
    shop.commit(made(1))
    for table, other in (("transaction", "emitted_at"), ("commit_log", "began_at")):
        ago = ", ".join(f"{at} = {at} - interval '9 d'" for at in ("committed_at", other))
        execute(connection, f"UPDATE reliability.{table} SET {ago}")
    shop.correct(1, made(9))
    shop.deliver(made(2))
    skip(connection, "shop", 2, "nobody needs it")
    plotted = client.get(at("shop", "/series")).json()
    assert plotted["lag"][0] < 3600
    assert plotted["rows"] == [6, 0]


# --- hostile texts -------------------------------------------------------------------------------

OTHERS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "\u202eright to left\u202c שלום",
    "'; DROP TABLE reliability.topology; --",
)
HOSTILE = " ".join(OTHERS)
INJECT = """
    UPDATE reliability.topology SET paused_reason = %(text)s WHERE topology = 'rich';
    UPDATE reliability.attempt SET reason = %(text)s WHERE topology = 'rich' AND reason IS NOT NULL;
    UPDATE reliability.attempt SET verdict_reason = %(text)s
     WHERE topology = 'rich' AND verdict IS NOT NULL;
    UPDATE reliability.attempt_event SET reason = %(text)s WHERE reason IS NOT NULL;
    UPDATE reliability.transaction SET held_reason = %(text)s WHERE held_reason IS NOT NULL;
    UPDATE reliability.commit_log SET reason = %(text)s WHERE reason IS NOT NULL;
    UPDATE reliability.refreeze SET reason = %(text)s;
    UPDATE reliability.skip SET reason = %(text)s, skipped_by = %(text)s;
    UPDATE reliability.set_aside SET reason = left(%(text)s, 500) WHERE kind = 'DROPPED';
    UPDATE reliability.quarantined_row SET reason = left(%(text)s, 500), item = %(text)s,
           contents = %(text)s;
    UPDATE reliability.audit SET name = %(text)s WHERE digest = '1';
    UPDATE reliability.audit_result SET examples = ARRAY[%(text)s]::text[] WHERE digest = '1';
    UPDATE reliability.audit_result SET problem = %(text)s WHERE digest = '3';
    UPDATE reliability.request SET reason = %(text)s, run_id = left(%(text)s, 200);
    UPDATE reliability.attempt_step SET driver_host = %(text)s, application_id = %(text)s;
    UPDATE reliability.transaction SET run_id = left(%(text)s, 200),
           batch_meta = jsonb_build_array(jsonb_build_object('kind', 'file', 'path', %(text)s::text,
                                                             'rows', 7)) WHERE topology = 'rich'
"""


def test_texts_of_others_are_shown_as_they_are(client, full, ledgers, monkeypatch):
    with new_session(database_of(ledgers.full)) as connection:
        monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)
        text = f"{HOSTILE} {'x' * 10_000}"
        execute(connection, INJECT, text=text)
        paths = ["/reliability/", at("rich"), at("rich", f"/runs?run_id={quote(text[:200])}")]
        paths += [at("rich", f"/txids/{txid}") for txid in (1, 2, 3, 6, 7, 9)]
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert_harmless(answer.text)
            said = " ".join("".join(Text(answer.text).said).split())
            assert " ".join(text[:200].split()) in said


def test_texts_of_an_address_are_shown_as_they_are(client, full):
    asked = quote(HOSTILE, safe="")
    for path in (
        at("rich", f"/explain?state=exact&key.k=1&key.word={asked}"),
        at("rich", f"/explain?state={asked}"),
        at("rich", f"/runs?run_id={asked}"),
        at("rich", f"?to={asked}"),
        at(HOSTILE),
        at(HOSTILE, "/calendar"),
    ):
        assert_harmless(client.get(path).text)


def assert_harmless(source):
    """No element and no handler came from a text."""
    for tag, attributes in Text(source).elements:
        assert tag != "img"
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "script":
            assert str(attributes["src"]).startswith("/reliability/static/")


def test_only_a_web_address_is_a_link_to_spark(client, shop):
    """A driver wrote it; the page's links open in Airflow's own document."""
    shop.begin(4)
    for url in ("http://worker:4040", "javascript:alert(1)", None):
        execute(shop.connection, RUNNING, url=url)
        is_link = url == "http://worker:4040"
        source = client.get(at("shop", "/txids/4")).text
        assert ('data-airflow-link href="http://worker:4040"' in source) == is_link
        assert "javascript:" not in source
        to = client.get(at("shop", "/txids/4/spark")).headers["location"]
        assert to == (url if is_link else at("shop", "/txids/4#attempts"))


RUNNING = """
    UPDATE reliability.attempt_step
       SET status = 'RUNNING', claimed_by = 'task', claimed_at = clock_timestamp(),
           application_id = 'app-1', ui_url = %(url)s WHERE txid = 4
"""


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        (at("nosuch"), 404, "nosuch is no topology, or its first run has not emitted yet."),
        *(
            (at("nosuch", path), 404, "nosuch is no topology")
            for path in ("/calendar", "/explain", "/runs?run_id=x", "/txids/1")
        ),
        *((at("many", f"/txids/{n}"), 404, "ATTEMPT_UNKNOWN") for n in (37, 0, 10**30)),
        (at("many", "/txids/seven"), 422, "txid: Input should be a valid integer"),
        (at("many", "?last=x"), 422, "last: Input should be a valid integer"),
        (at("many", "/calendar?before=x"), 422, "before: Input should be a valid datetime"),
        (at("many", "/calendar?before=0001-01-01T00:00:00%2B23:59"), 422, "before the year 1"),
        (at("many", "/nosuch"), 404, "Not Found"),
        ("/reliability/nosuch", 404, "Not Found"),
    ],
)
def test_an_error_is_a_page(client, full, path, status, says):
    assert says in read(client, path, status)


PAGES = ("/reliability/", at("many"), at("many", "/txids/1"), at("many", "/explain"))


def test_the_ledger_is_down(client, monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", "host=127.0.0.1 port=1 dbname=nowhere")
    for path in PAGES:
        said = read(client, path, 503)
        assert "LEDGER_UNAVAILABLE" in said
        assert "What to do:" in said
    answer = client.post(at("many", "/actions/resume"), headers=FROM_THE_PAGE)
    assert answer.status_code == 503
    assert answer.text.startswith('<div class="note bad" role="alert">')


def test_nothing_is_done_to_the_schema_of_another_release(client, shop):
    newer = "INSERT INTO reliability.migration VALUES (999, 'new', '', 999)"
    older = "DELETE FROM reliability.migration WHERE number > 5"
    for changed, code in ((newer, "LEDGER_TOO_NEW"), (older, "LEDGER_TOO_OLD")):
        execute(shop.connection, changed)
        for path in ("/reliability/", *views("shop", 3)[1:], at("shop", "/txids/3/spark")):
            if not path.endswith("/series"):
                assert code in read(client, path, 409), path
        for what in ("pause", "resume", "rollback", "release", "park", "skip"):
            assert code in change(client, what, 409, txid=4, reason="x"), what
    position = "SELECT paused_reason, commit_number FROM reliability.topology"
    assert shop.ask(position) == [(None, 3)]
    execute(shop.connection, "DROP SCHEMA reliability CASCADE")
    for path in PAGES:
        said = read(client, path, 409)
        assert "LEDGER_NOT_MIGRATED" in said
        assert "reliability migrate" in said


def test_who_may_not_read_is_told_so(client, full, rights):
    rights.may_read = False
    for path in views("many", 36)[1:]:
        answer = client.get(path)
        assert answer.status_code == 403
        assert "many" not in "".join(Text(answer.text).said)
    said = client.get(at("many", "/series"), headers={"Accept": "application/json"})
    assert said.json() == {"detail": "Forbidden"}


def test_a_name_that_nothing_can_have_is_not_found_whoever_asks(client, full, rights):
    """The ledger was asked for it before the rights were, and its error was shown."""
    for rights.may_read in (True, False):
        for path in (at("many\0"), at("many\0", "/txids/1"), "/reliability/of-dag/many%00"):
            assert "Not Found" in read(client, path, 404)


def test_the_login_leads_back_to_the_same_run(client, full, rights):
    rights.may_read = False
    query = "?run_id=scheduled__2026-01-01T00%3A00%3A00%2B00%3A00"
    source = client.get(at("many", f"/runs{query}")).text
    (login,) = re.findall(r'href="(/auth/login[^"]+)"', source)
    [(_, back)] = parse_qsl(urlsplit(html.unescape(login)).query)
    assert back == at("many", f"/runs{query}")


def test_a_browser_asks_whether_its_script_is_of_this_release(client):
    script = client.get("/reliability/static/page.js").headers
    assert script["cache-control"] == "no-cache"
    assert script["etag"]


@pytest.mark.parametrize(
    ("path", "begin"), [("", ""), ("/", ""), ("/team/airflow/", "/team/airflow")]
)
def test_where_airflow_has_a_path_its_tabs_lead_to_the_page_there(airflow_home, path, begin):
    """They led to the root of the host, where its UI does not put the path before an address."""
    from reliability_airflow.plugin import views

    nav, *tabs = views(f"https://host{path}")
    assert (nav["href"], nav["icon"]) == tuple(
        f"{begin}/reliability/{name}" for name in ("", "static/icon.svg")
    )
    assert {tab["href"].partition("{")[0] for tab in tabs} == {f"{begin}/reliability/of-dag/"}


def test_who_may_not_act_sees_no_buttons(client, full, rights):
    assert 'data-opens="' in client.get(at("rich")).text
    assert 'data-opens="' in client.get(at("rich", "/txids/1")).text
    rights.may_act = False
    for path in (at("rich"), at("rich", "/txids/1"), at("rich", "/txids/9")):
        source = client.get(path).text
        assert "data-opens" not in source
        assert "<dialog" not in source


# --- changes -------------------------------------------------------------------------------------


ACTIONS = ("pause", "resume", "rollback", "release", "undone", "to_clear", "park", "skip")


def change(client, what, status=200, headers=(), topology="shop", **fields):
    """Do what a dialog does, and return what the answer says."""
    answer = client.post(
        at(topology, f"/actions/{what}"), data=fields, headers={**FROM_THE_PAGE, **dict(headers)}
    )
    assert answer.status_code == status, answer.text
    return " ".join("".join(Text(answer.text).said).split())


def test_another_site_and_who_may_not_act_change_nothing(client, shop, rights):
    for headers in (
        {},
        {**FROM_THE_PAGE, "Origin": "https://evil.example"},
        {**FROM_THE_PAGE, "Origin": "null"},
        {**FROM_THE_PAGE, "Sec-Fetch-Site": "cross-site"},
        {**FROM_THE_PAGE, "Sec-Fetch-Site": "same-site"},
    ):
        for what in ACTIONS:
            data = {"reason": "x", "txid": "1"}
            answer = client.post(at("shop", f"/actions/{what}"), data=data, headers=headers)
            assert answer.status_code == 403, (what, headers)
            if headers.get("Origin") and "Sec-Fetch-Site" not in headers:
                assert "this is testserver. A proxy must pass on Host" in answer.text
    rights.may_act = False
    change(client, "pause", 403, reason="x")
    position = "SELECT paused_reason, commit_number FROM reliability.topology"
    assert shop.ask(position) == [(None, 3)]


def test_what_to_clear_are_the_tasks_of_txids_and_what_did_not_start_behind_them(client, shop):
    """What is skipped counts where the topology was; what another topology emitted never does."""

    def to_clear(tasks, group, txids, emitted):
        body = {"tasks": tasks, "emitted": emitted, "txids": txids, "group": group}
        answer = client.post(at("shop", "/actions/to_clear"), json=body, headers=FROM_THE_PAGE)
        return answer.json()["task_ids"], answer.json()["is_known"]

    for group, committed in product(("", "aa.shop."), ("success", "skipped")):
        commit, process = f"{group}transaction.commit", f"{group}transaction.process"
        states = {
            **{f"{group}{name}": "success" for name in ("emit", "settle")},
            **{f"{group}committed": committed, f"{group}note": "upstream_failed"},
            **{commit: "skipped", "report": "skipped", "told": "success"},
            **{"bb.emit": "success", "bb.settle": "skipped", "bb.committed": "upstream_failed"},
            **{"cc.emit": "skipped", "cc.settle": "skipped", "foo.emit": "upstream_failed"},
        }
        tasks = [{"task_id": id_, "map_index": -1, "state": of} for id_, of in states.items()]
        tasks += [{"task_id": process, "map_index": i, "state": "failed"} for i in range(3)]
        skipped = ["report", "cc.emit", "cc.settle"] if committed == "skipped" else []
        behind = [f"{group}note", *skipped, "foo.emit"]
        ends = [f"{group}committed"] * bool(group) + [f"{group}settle"]
        every = [[process, i] for i in range(3)]
        asked = partial(to_clear, tasks, group)
        assert asked([8], [7, 8, 9]) == ([[process, 1], *ends, *behind], True)
        assert asked([9, 8, 7], [7, 8, 9]) == ([commit, *every, *ends, *behind], True)
        own = [id_ for id_ in states if id_.startswith("aa.")]
        whole = [*own, *every, *(id_ for id_ in behind if id_ not in own)] if group else []
        for emitted in ([7, 9], None):
            assert asked([8], emitted) == (whole, False)


def test_only_roles_that_are_named_may_correct_and_without_names_all_may(airflow_home, monkeypatch):
    """A user of Airflow's simple login has one role, a user of FAB several."""
    from reliability_airflow.page import access

    monkeypatch.setattr(access, "_may", lambda user, method, dag_id: True)
    users = [
        (SimpleNamespace(role="op"), True),
        (SimpleNamespace(role="viewer"), False),
        (SimpleNamespace(roles=[SimpleNamespace(name=n) for n in ("Viewer", "Corrects")]), True),
        (SimpleNamespace(roles=[SimpleNamespace(name="User")]), False),
        (SimpleNamespace(), False),
    ]
    assert all(access.may_act_on(user, "shop") for user, _ in users)
    monkeypatch.setenv("AIRFLOW__RELIABILITY__CORRECTION_ROLES", "Corrects, Op")
    for user, may in users:
        assert access.may_act_on(user, "shop") is may, user


def test_who_has_no_role_for_corrections_changes_nothing(client, shop, monkeypatch):
    """The permission to edit runs is not enough then."""
    monkeypatch.setenv("AIRFLOW__RELIABILITY__CORRECTION_ROLES", "Corrects, Op")
    for what in ACTIONS:
        said = change(client, what, 403, reason="x", txid=1)
        assert "corrections need one of these roles: Corrects, Op" in said
    assert shop.ask("SELECT paused_reason FROM reliability.topology") == [(None,)]
    monkeypatch.setattr(Person, "role", "op", raising=False)
    assert "shop is paused" in change(client, "pause", reason="x")


def test_pause_resume_park_and_skip(client, shop):
    for reason in ({}, {"reason": "x" * 501}, {"reason": "  "}):
        change(client, "pause", 422, **reason)
    own = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert "shop is paused" in change(client, "pause", headers=own, reason="the disk is full")
    asked = "SELECT paused_reason FROM reliability.topology"
    assert shop.ask(asked) == [("the disk is full (zoe, on the page)",)]
    assert "It is paused: the disk is full (zoe, on the page)" in read(client, at("shop"))
    change(client, "resume")
    assert shop.ask(asked) == [(None,)]
    for what in ("pause", "resume"):
        assert "TOPOLOGY_UNKNOWN" in change(client, what, 404, topology="nosuch", reason="x")

    pause(shop.connection, "shop", "")  # without a reason it is one, too
    source = client.get(at("shop")).text
    assert 'data-opens="resume"' in source
    assert 'data-opens="pause"' not in source
    assert "paused" in read(client, "/reliability/")

    change(client, "resume")
    assert "Txid 4 is parked. It has committed as empty, as change 4." in change(
        client, "park", txid=4, reason="its file is broken"
    )
    assert "Txid 5 is skipped for good." in change(client, "skip", txid=5, reason="a duplicate")
    asked = "SELECT txid, verdict, verdict_reason FROM reliability.attempt"
    assert shop.ask(f"{asked} WHERE verdict IS NOT NULL ORDER BY txid") == [
        (4, "PARKED", "its file is broken (zoe, on the page)"),
        (5, "SKIPPED", "a duplicate"),
    ]
    skips = shop.ask("SELECT txid, skipped_by, reason FROM reliability.skip")
    assert skips == [(5, "zoe", "a duplicate")]
    assert "PARK_NOT_POSSIBLE" in change(client, "park", 409, txid=99, reason="x")
    assert "What to do:" in change(client, "park", 409, txid=1, reason="x")


def test_roll_back_and_release(client, shop):
    before = shop.tables()
    said = change(client, "rollback", txid=1, reason="30 % off", dry_run="yes")
    assert "A dry run: nothing has changed. What would change" in said
    assert "Would be held: 2..5." in said
    assert "Roll back to txid 1" in said
    assert shop.tables() == before
    assert shop.ask("SELECT kind FROM reliability.commit_log WHERE kind = 'ROLLBACK'") == []
    said = change(client, "rollback", txid=1, reason="30 % off")
    assert "shop was rolled back to txid 1, as change 4. What changed" in said
    assert "Held until you release them: 2..5." in said
    assert shop.tables() != before
    asked = "SELECT txid, reason FROM reliability.commit_log WHERE kind = 'ROLLBACK'"
    assert shop.ask(asked) == [(1, "30 % off (zoe, on the page)")]
    assert "held" in read(client, at("shop"))

    said = change(client, "release")
    assert "Released: 2..5." in said
    assert "the tasks of these txids have to be cleared" in said
    asked = "SELECT count(*) FROM reliability.transaction WHERE held_reason IS NOT NULL"
    assert shop.ask(asked) == [(0,)]
    assert "No txid was held." in change(client, "release")
    assert "Clear…" in read(client, at("shop"))
    assert "No run works on 2..5." in change(client, "undone")
    shop.do_again(2, 3)
    assert shop.tables() == before


# --- how long it takes ---------------------------------------------------------------------------


def test_every_view_of_a_long_history_is_quick(client, long):
    most = SECONDS * slowness()
    took = {path: fastest(client, path, most) for path in views(LONG, TXIDS)}
    print("\n".join(f"{seconds * 1000:5.0f} ms  {path}" for path, seconds in took.items()))
    assert max(took.values()) < most, took


def fastest(client, path, most):
    """Return what the first answer of 20 took that was quick enough: the machine does more."""
    assert client.get(path).status_code == 200
    times = (timeit.timeit(partial(client.get, path), number=1) for _ in range(20))
    return next((took for took in times if took < most), most)
