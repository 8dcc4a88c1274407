"""The page in a browser: what it loads, how it looks and sounds, and what hands can do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Route
from psycopg2.sql import SQL

from reliability.ledger.connection import LedgerConnection
from reliability.transaction.correct.rollback import roll_back
from tests.support.fix_page import LONG, TOPOLOGIES, TXIDS, shop_named
from tests.support.fix_postgres import execute
from tests.support.fix_shop import shop_with
from tests.support.processor import slowness

AXE = Axe()
ONLY = {"resultTypes": ["violations"], "preload": False}
ALL = {**TOPOLOGIES, TXIDS: LONG}
SECONDS = 0.6  # until something is seen, however long the history; a browser needs 0.2
LOOKS = (("light", 1280), ("dark", 400))  # themes and widths: neither depends on the other
THEMES = [theme for theme, _ in LOOKS]


def at(topology, path=""):
    return f"/reliability/dags/{topology}{path}"


def views(topology, txid):
    return [
        at(topology),
        at(topology, f"?last={max(txid // 2, 1)}&size=50"),
        at(topology, "/calendar"),
        at(topology, "/explain?state=totals&key.customer_id=1"),
        at(topology, f"/runs?run_id=run+{txid}"),
        *([at(topology, f"/txids/{txid}")] if txid else []),
    ]


RICH = [at("rich"), *(at("rich", f"/txids/{txid}") for txid in (1, 2, 6, 9)),
        at("rich", "/explain?state=exact&key.k=1&key.word=a"), at("rich", "/runs?run_id=run+1"),
        at("rich", "/calendar"), "/reliability/"]  # fmt: skip


# Two of three txids have committed; the test has them for itself.
origin, shop = shop_with(2, 3, make=lambda connection: shop_named(connection, "shop"))


# --- how it looks --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("txids", TOPOLOGIES)
def test_every_view_looks_well(tab, full, txids):
    for path in views(TOPOLOGIES[txids], txids):
        assert_looks_well(tab, path)


def test_a_rich_history_and_an_empty_ledger_look_well(tab, full, ledgers, monkeypatch):
    for path in RICH:
        assert_looks_well(tab, path)
    monkeypatch.setenv("RELIABILITY_DSN", ledgers.empty)
    assert_looks_well(tab, "/reliability/")


@pytest.mark.slow
def test_a_long_history_looks_well_and_is_soon_seen(tab, long_ledger, monkeypatch):
    monkeypatch.setenv("RELIABILITY_DSN", long_ledger)
    painted, most = {}, SECONDS * slowness()
    tab.open("/reliability/")  # starts the browser's processes
    for path in ["/reliability/", *views(LONG, TXIDS)]:
        painted[path] = assert_looks_well(tab, path)
        for _ in range(6):  # the machine does other things, too
            if painted[path] >= most:
                tab.open(path)
                painted[path] = tab.seen_after()
    print("\n".join(f"{seconds * 1000:5.0f} ms  {path}" for path, seconds in painted.items()))
    assert max(painted.values()) < most, painted


def assert_looks_well(tab, path):
    """In both themes and widths.

    :returns: after how many seconds something was seen
    """
    page = tab.page
    for theme, width in LOOKS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        if (theme, width) == LOOKS[0]:
            tab.open(path)
            seen_after = tab.seen_after()
        tab.until(f"document.documentElement.dataset.theme === '{theme}'")
        tab.until(f"document.documentElement.scrollWidth <= {width}")  # plots are drawn anew
        assert_axe_is_silent(page, f"{path} {theme} {width}")
    assert tab.wrong == []
    return seen_after


def assert_axe_is_silent(page, where, context=None):
    """Nothing that axe knows of keeps anybody from reading this."""
    found = [
        f"{one['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for one in AXE.run(page, context, ONLY).response["violations"]
        for node in one["nodes"][:3]
    ]
    assert not found, "\n".join([where, *found])


def test_dialogs_look_well(tab, full):
    seen: set[str] = set()  # some are on several pages
    for path in (at("rich"), at("rich", "/txids/1"), at("rich", "/txids/9")):
        page = tab.open(path)
        names = page.evaluate("[...document.querySelectorAll('[data-opens]')]"
                              ".map((one) => one.dataset.opens)")  # fmt: skip
        for name in {*names} - seen:
            seen.add(name)
            page.click(f"[data-opens={name}]")
            for theme in THEMES:
                page.emulate_media(color_scheme=theme)
                tab.until(f"document.documentElement.dataset.theme === '{theme}'")
                assert_axe_is_silent(page, f"{path} {name} {theme}", "dialog[open]")
            page.keyboard.press("Escape")


def test_a_plot_has_a_table(tab, full):
    page = tab.open(at("many"))
    assert page.locator(".uplot canvas").count() == 2
    page.click("[data-plot=lag] summary")
    numbers = page.locator("[data-plot=lag] tbody tr td:first-child").all_inner_texts()
    assert numbers == [str(txid) for txid in range(36, 0, -1)]
    page.emulate_media(color_scheme="dark")  # drawn anew, each once
    tab.until("document.documentElement.dataset.theme === 'dark'")
    assert page.locator(".uplot canvas").count() == 2
    assert page.locator("[data-plot] details").count() == 2
    assert page.inner_text("[data-plot=throughput] .empty-plot").startswith("Too few commits")


# --- hands ---------------------------------------------------------------------------------------


def test_a_keyboard_is_enough(tab, shop):
    page = tab.open(at("shop"))
    tab_to(page, "Pause…")
    page.keyboard.press("Enter")
    assert page.locator("dialog#pause[open]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    assert focused(page) == "Pause…"
    page.keyboard.press("Enter")
    tab_to(page, "INPUT reason")
    page.keyboard.type("the disk is full")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog#pause .answer .note.good")
    assert shop.ask("SELECT paused_reason FROM reliability.topology") == [
        ("the disk is full (zoe, on the page)",)
    ]
    with page.expect_navigation():
        page.keyboard.press("Escape")  # the page shows what has changed
    tab.wait_for_plots()
    assert page.locator("h1 .badge").inner_text().endswith("paused")
    tab_to(page, "Resume…")


def tab_to(page, what):
    """Press Tab until this has the focus."""
    for _ in range(60):
        if focused(page) == what:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{what} is not reached by the keyboard; the last was {focused(page)}")


def focused(page):
    return page.evaluate(
        "(({ tagName, name, textContent }) => name && tagName === 'INPUT' ? `INPUT ${name}`"
        " : textContent.trim().slice(0, 40))(document.activeElement)"
    )


def test_what_is_refused_is_said_in_the_dialog(tab, shop, airflow, monkeypatch):
    page = tab.open(at("shop", "/txids/3"))
    monkeypatch.setattr(airflow.rights, "may_act", False)
    page.click("[data-opens=park]")
    page.fill("dialog[open] [name=reason]", "x")
    page.click("dialog[open] button.primary")
    assert page.inner_text("dialog[open] .answer").endswith("(403): Forbidden.")
    assert len(page.query_selector_all("h1")) == 1
    assert [one for one in tab.wrong if "403" not in one] == []
    tab.wrong.clear()


def test_a_replay_of_what_is_there_is_asked_of_airflow(tab, shop, airflow):
    asked = list(airflow.asked)
    page = tab.open(at("shop", "/txids/2"))
    for text, answer in (
        ("99", "there is no txid of '99'"),
        ("1,99", "there is no txid of '1,99'"),
        ("3", "has not committed txid 3"),
        ("March", "neither a txid nor an interval"),
    ):
        page.click("[data-opens=replay]")
        page.fill("dialog[open] [name=replay]", text)
        page.fill("dialog[open] [name=reason]", "x")
        page.click("dialog[open] button.primary")
        page.wait_for_selector(f'dialog[open] .answer:has-text("{answer}")')
        page.keyboard.press("Escape")
    assert airflow.asked == asked
    tab.wrong.clear()
    page.click("[data-opens=replay]")
    page.fill("dialog[open] [name=replay]", "1, 2")
    page.fill("dialog[open] [name=reason]", "new code")
    slow: list[Route] = []
    page.route("**/runs?*", lambda route: slow.append(route))
    with page.expect_console_message():
        page.evaluate(TWICE)  # a second click would be a second run
    with page.expect_navigation():
        slow[0].continue_()
    assert page.url.endswith(at("shop", "/runs?run_id=manual+1&dag=shop"))
    conf = {"replay": "1..2", "reason": "new code", "dry_run": True}
    assert airflow.asked == [*asked, ("shop", {"logical_date": None, "conf": conf})]


#: Press a button, and again when the answer must have come.
TWICE = """(() => {
    const button = document.querySelector("dialog[open] button.primary");
    button.click();
    setTimeout(() => { button.click(); console.log("again"); }, 500);
})()"""

GATEWAY = {"status": 504, "body": "<html><title>x</title><h1>Time-out</h1><hr>nginx</html>"}
LOGIN = {"status": 200, "body": "<style>p {}</style><script>go()</script><form>Sign in</form>"}
NOT_AIRFLOW = "This was not answered by Airflow (it lacks the header X-Reliability)"
REFUSED = "Airflow refuses it (504): Time-out nginx"
MAY_BE = "It may have been done: look before you do it again."


def test_what_the_page_has_not_answered_is_a_sentence_and_no_success(tab, shop):
    """The page of a proxy or of a login stood in the dialog, as if the action had been done."""
    page = tab.open(at("shop"))
    answers = {
        f"{REFUSED}. {MAY_BE}": GATEWAY,
        f"{NOT_AIRFLOW}: Sign in. {MAY_BE}": LOGIN,
        f"{NOT_AIRFLOW}. {MAY_BE}": {"status": 200, "body": ""},
        "Airflow refuses it (401): gone. Log in in another tab, and try again.": {
            "status": 401,
            "body": '{"detail": "gone"}',
        },
        f"No answer came. {MAY_BE.replace('It', 'What you asked for')}": None,
    }
    current: list[Any] = [GATEWAY]

    def answer(route):
        given = current[-1]
        route.fulfill(content_type="text/html", **given) if given else route.abort()

    page.route("**/actions/*", answer)
    page.click("[data-opens=rollback]")
    page.fill("dialog[open] [name=reason]", "x")
    for said, answered in answers.items():
        current.append(answered)
        page.click("dialog[open] button.primary")
        page.wait_for_selector(f'dialog[open] .answer .note.bad:has-text("{said}")')
    page.unroute("**/actions/*")
    page.keyboard.press("Escape")

    held: list[Route] = []  # who closes the dialog sees the answer all the same
    page.route("**/actions/pause", lambda route: held.append(route))
    page.click("[data-opens=pause]")
    page.fill("dialog[open] [name=reason]", "x")
    page.click("dialog[open] button.primary")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    held[0].continue_()
    page.wait_for_selector("dialog#pause[open] .answer .note.good")
    tab.wrong.clear()


def test_a_run_that_airflow_has_lost_keeps_no_other_from_being_cleared(tab, shop):
    """And of a run with more tasks than Airflow answers at once, those beyond were left out."""
    roll_back(shop.connection, "shop", 0, "all of it")
    page, cleared = tab.open(at("shop")), []
    every = [{"task_id": "transaction.process", "map_index": n, "state": None} for n in range(70)]

    def tasks(route):
        if "run%201/" in route.request.url:
            route.fulfill(status=404, body="{}")
            return
        begin = int(route.request.url.partition("offset=")[2].partition("&")[0])
        found = {"task_instances": every[begin : begin + 50], "total_entries": 70}
        route.fulfill(body=json.dumps(found))

    def clear(route):
        cleared.append(route.request.post_data_json["task_ids"])
        route.fulfill(status=200 if len(cleared) > 1 else 503, body="{}")

    emitted = json.dumps({"value": [*range(100, 160), 3]})  # 3 has the index 60
    page.route("**/taskInstances?*", tasks)
    page.route("**/xcomEntries/**", lambda route: route.fulfill(body=emitted))
    page.route("**/clearTaskInstances", clear)
    page.click("[data-opens=release]")
    page.click("dialog[open] button.primary")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.bad:has-text('(503)')")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.good:has-text('1 run is cleared')")
    assert "no longer has run 1." in page.inner_text("dialog[open] .answer .note.bad")
    assert cleared == [[["transaction.process", 60], "settle"]] * 2
    tab.wrong.clear()


def test_a_run_that_could_not_be_cleared_is_offered_again(tab, shop):
    """The released txids are no longer held, so the page offers it nowhere else.

    Another run of theirs, which was cleared at once, is not cleared again.
    """
    roll_back(shop.connection, "shop", 1, "30 % off")
    page = tab.open(at("shop"))
    answers = [200, 503, 200, 200, 200]
    page.route("**/taskInstances?*", lambda route: route.fulfill(body='{"task_instances": []}'))
    page.route(
        "**/clear", lambda route: route.fulfill(status=answers.pop(0), body='{"detail": "busy"}')
    )
    page.click("[data-opens=release]")
    page.click("dialog[open] button.primary")
    page.click("dialog[open] .answer button.primary")
    assert "(503): busy. It may have been" in page.inner_text("dialog[open] .answer .note.bad")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.good:has-text('1 run is cleared')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    page.click("[data-opens=undone]")  # of Airflow's answers nothing has come true
    page.click("dialog[open] button.primary")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.good:has-text('2 runs are cleared')")
    tab.wrong.clear()


def test_nothing_is_cleared_by_guess_or_by_what_is_no_longer_so(tab, shop):
    """R1: it cleared the whole run, or what others had resumed: a replay of what is committed."""
    roll_back(shop.connection, "shop", 1, "30 % off")
    page, cleared = tab.open(at("shop")), []
    page.route("**/taskInstances?*", lambda route: route.fulfill(body='{"task_instances": []}'))
    page.route("**/xcomEntries/**", lambda route: route.fulfill(status=500, body="{}"))
    page.route("**/clear*", lambda route: cleared.append(route.abort()))
    page.click("[data-opens=release]")
    page.click("dialog[open] button.primary")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.bad:has-text('refuses it (500)')")
    execute(shop.connection, "INSERT INTO reliability.migration VALUES (999, 'new', '', 999)")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.bad code:has-text('LEDGER_TOO_NEW')")
    execute(shop.connection, "DELETE FROM reliability.migration WHERE number = 999")
    roll_back(shop.connection, "shop", 0, "all of it")
    page.click("dialog[open] .answer button.primary")
    page.wait_for_selector("dialog[open] .answer .note.bad:has-text('Nothing was cleared')")
    assert page.query_selector("dialog[open] [data-clears]") is None
    assert cleared == []
    tab.wrong.clear()


# --- refreshing ----------------------------------------------------------------------------------


@pytest.fixture
def clock(tab, shop):
    """The topology's page, whose time stands still until the test lets it pass."""
    tab.page.clock.install()
    tab.open(at("shop"))
    return tab.page.clock


def change(shop):
    """Let the page have something new to show."""
    with LedgerConnection(shop.connection.dsn) as connection, connection.transaction() as tx:
        tx.run(SQL("UPDATE reliability.transaction SET emitted_count = 77 WHERE txid = 3"))


def test_refreshing_keeps_the_focus_and_does_not_touch_a_dialog(tab, shop, clock):
    page = tab.page
    page.focus(f"[href='{at('shop', '/txids/1')}']")
    change(shop)
    with page.expect_response(lambda answer: answer.url.endswith(at("shop"))):
        clock.run_for(5100)
    tab.until("document.querySelector('.timeline').innerText.includes('77')")
    assert focused(page) == "1"
    old = "(document.querySelector('#old')?.innerText ?? '')"
    page.route("**/dags/shop", lambda route: route.fulfill(body="<p>Log in"))
    clock.run_for(5100)  # a login with 200 wrote `null` over the page, which stayed so
    tab.until(f"{old}.includes('has not been refreshed: it was answered with 200.')")
    page.unroute("**/dags/shop")
    clock.run_for(5100)
    tab.until(f"{old} === ''")

    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.click("[data-opens=pause]")
    page.fill("dialog[open] [name=reason]", "half of a rea")
    clock.run_for(30_000)
    assert asked == []
    assert page.input_value("dialog[open] [name=reason]") == "half of a rea"


def test_refreshing_does_not_touch_a_dialog_that_was_opened_meanwhile(tab, shop, clock):
    page = tab.page
    held = []
    page.route("**/dags/shop", lambda route: held.append(route))
    change(shop)
    clock.run_for(5100)
    tab.until("true")
    page.click("[data-opens=pause]")
    page.fill("dialog[open] [name=reason]", "half of a rea")
    (route,) = held
    with page.expect_response(lambda answer: answer.url.endswith(at("shop"))):
        route.continue_()
    page.wait_for_load_state("networkidle")
    assert page.input_value("dialog[open] [name=reason]") == "half of a rea"
    assert focused(page) == "INPUT reason"


# --- in Airflow's frame --------------------------------------------------------------------------


def test_the_theme_is_the_frames_and_a_link_to_airflow_leaves_the_frame(tab, full):
    page = tab.open(f"/framed?theme=dark&path={at('many', '/txids/36')}")
    page.emulate_media(color_scheme="light")
    frame = page.frames[1]
    theme = "document.documentElement.dataset.theme"
    assert frame.evaluate(theme) == "dark"
    page.evaluate("document.documentElement.className = 'light'")
    tab.until(f"{theme} === 'light'", frame)
    with page.expect_navigation():
        frame.click("dd a[data-airflow-link]")
    assert page.url.endswith("/runs/run%2036")
