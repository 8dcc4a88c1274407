"""The page in a running Airflow: who may see and do what, and each action done in a browser."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from dev.services.airflow import USER
from dev.services.airflow_api import AirflowApiError
from tests.end_to_end.dates import Dag, Dates, scheduled, story, wait_for
from tests.end_to_end.users import SECRET, USERS
from tests.support.fix_page import FROM_THE_PAGE

PAGES = ("", "/txids/1", "/series", "/calendar", f"/explain?state={SECRET}", "/runs?run_id=x")
WORDS = {"2026-01-01": ["man", "dog"], "2026-01-02": ["ape", "man"]}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def two_days(dates: Dates) -> Dag:
    return scheduled(dates, "paged", *(f"{day}/a {' '.join(of)}" for day, of in WORDS.items()))


pytestmark = [pytest.mark.timeout(900), story(two_days)]


@pytest.fixture(scope="module")
def dag(stories) -> Dag:
    """A topology with two days committed."""
    dag: Dag = stories[two_days,]
    assert dag.states(2) == ["success"] * 2
    return dag


def words_of(dag: Dag, txid: int) -> list[str]:
    """Return the words of a txid: the runs may have emitted in any order."""
    return WORDS[dict(dag.txids())[txid]]


# --- who may see and do what ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens(airflow, dag) -> dict[str, str]:
    """A token of each user; none for one who has not logged in."""
    return {name: airflow.airflow.api(name).token() for name in (USER, *USERS)}


@pytest.fixture
def ask(airflow, tokens):
    """Return a function that asks the page as a user, and returns status and text."""

    def asked(user: str | None, path: str, form: str | None = None, **headers: str):
        if user is not None:
            headers["Authorization"] = f"Bearer {tokens.get(user, user)}"
        url = f"{airflow.airflow.url}/reliability{path}"
        data = form.encode() if form is not None else None
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(url, data=data, headers=named)
        try:
            with OPENER.open(request, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return asked


def test_nothing_is_told_without_the_permission_to_read_the_dag_s_runs(ask):
    """A page of a DAG is for those who may read its runs, and so is its name in the list."""
    for path in PAGES:
        page = f"/dags/{SECRET}{path}"
        assert ask(None, page)[0] == 401, path
        assert ask("not.a.token", page)[0] in (401, 403), path
        assert ask("stranger", page)[0] == 403, path
        for user in ("viewer", "user", "admin"):
            status, text = ask(user, page)
            assert status == 200, (path, user)
            assert "Traceback" not in text
    assert ask(None, "/")[0] == 401
    assert SECRET in ask("viewer", "/")[1]
    status, text = ask("stranger", "/")
    assert status == 200
    assert SECRET not in text


def test_who_may_not_edit_the_dag_s_runs_changes_nothing(ask, dag):
    """An action needs the permission to change the DAG's runs; a cookie alone proves no intent."""
    before = dag.commits()
    for action in ("pause", "resume", "rollback", "release", "park", "skip"):
        path = f"/dags/{SECRET}/actions/{action}"
        for user in (None, "not.a.token", "viewer", "stranger"):
            status, _ = ask(user, path, "reason=x&txid=1", **FROM_THE_PAGE)
            assert status in (401, 403), (action, user)
        assert ask("admin", path, "reason=x&txid=1")[0] == 403, action
    assert dag.commits() == before
    assert dag.ledger_rows("paused_reason, curr_txid", "topology", "1") == [(None, 3)]


def test_what_is_needed_to_show_the_page_is_all_that_is_public(ask):
    """No documentation of the interface, and no description of it, is told to strangers."""
    assert ask(None, "/static/page.css")[0] == 200
    for path in ("/docs", "/redoc", "/openapi.json"):
        status, text = ask(None, path)
        assert status in (401, 404), text[:100]


def test_airflow_shows_the_page_and_its_tabs(airflow):
    """The plugin is loaded once, without an error, and has a tab in each of Airflow's views."""
    api = airflow.api()
    assert api.get("/api/v2/plugins/importErrors")["import_errors"] == []
    [plugin] = [
        one for one in api.get("/api/v2/plugins")["plugins"] if one["name"] == "reliability"
    ]
    assert [view["destination"] for view in plugin["external_views"]] == [
        *("nav", "dag", "dag_run", "task_instance")
    ]


# --- each action in a browser --------------------------------------------------------------------


@pytest.fixture
def page(browser, airflow, tokens):
    """A page of the browser, logged in as a user who may act; an error of its scripts fails."""
    context = browser.new_context()
    context.add_cookies([{"name": "_token", "value": tokens["user"], "url": airflow.airflow.url}])
    page = context.new_page()
    page.set_default_timeout(60_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def open_page(page, airflow, path: str = "") -> None:
    page.goto(f"{airflow.airflow.url}/reliability/dags/{SECRET}{path}")


def in_dialog(page, button: str, reason: str | None, submit: str) -> None:
    """Open a dialog, give the reason, and press its button."""
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=submit, exact=True).click()


@pytest.mark.slow
def test_a_topology_is_paused_and_resumed(page, airflow, dag):
    """The reason, with who gave it, is in the ledger."""
    open_page(page, airflow)
    in_dialog(page, "Pause…", "the warehouse moves", "Pause")
    page.get_by_text(f"{SECRET} is paused").wait_for()
    [(reason,)] = dag.ledger_rows("paused_reason", "topology", "1")
    assert reason.startswith("the warehouse moves")
    assert "user" in reason
    page.keyboard.press("Escape")
    in_dialog(page, "Resume…", None, "Resume")
    page.get_by_text(f"{SECRET} is resumed").wait_for()
    assert dag.ledger_rows("paused_reason", "topology", "1") == [(None,)]


def test_a_replay_is_tried_and_then_done(page, airflow, dag, dates):
    """The dry run shows the difference; the replay swaps the contribution, in Airflow's runs.

    E9: a scheduled run keeps its conf, and nothing is emitted.
    """
    before, scheduled = dag.counted(), {name: run["conf"] for name, run in dag.runs().items()}
    dogs = next(txid for txid, _ in dag.txids() if "dog" in words_of(dag, txid))
    dag.read_as(dog="cat")
    open_page(page, airflow, f"/txids/{dogs}")
    in_dialog(page, "Replay…", "dogs were cats", "Try it first")
    page.get_by_role("heading", name="What it would change").wait_for(timeout=120_000)
    page.get_by_text("1 row added").wait_for()
    assert dag.counted() == before, "a dry run changed a table"

    page.get_by_label("Reason").fill("dogs were cats")
    page.get_by_role("button", name="Replay it now").click()
    page.get_by_role("heading", name="What it changed").wait_for(timeout=120_000)
    assert dag.counted() == {"man": 2, "ape": 1, "cat": 1}
    reasons = [row[0] for row in dag.ledger_rows("reason", "request", "request_id")]
    assert reasons.count("dogs were cats") == 2
    logs = "".join(dag.log(run_id) for run_id in dag.runs() if run_id not in scheduled)
    assert logs.count(f"To replay txid {dogs}: airflow dags trigger {dag.dag_id} --conf") == 1
    assert scheduled.items() <= {name: run["conf"] for name, run in dag.runs().items()}.items()
    assert {name for (name,) in dag.ledger_rows("run_id", "emission", "1")} == {*scheduled}
    assert json.loads(dates.reliability("resume-runs", dag.dag_id, "--json"))["runs"] == []
    with pytest.raises(AirflowApiError, match="400"):
        dag.trigger(None, conf={"replay": 5})


def test_a_rollback_is_tried_done_released_and_caught_up(page, airflow, dag):
    """Later txids are held until they are released, and their runs are cleared from the page."""
    before = dag.counted()
    open_page(page, airflow, "/txids/1")
    in_dialog(page, "Roll back to here…", "the second day is wrong", "Try it first")
    page.get_by_text("nothing has changed").wait_for()
    assert dag.counted() == before
    page.get_by_role("button", name="Roll back to txid 1").click()
    page.get_by_text("was rolled back to txid 1").wait_for()
    first = ["cat" if word == "dog" else word for word in words_of(dag, 1)]
    assert dag.counted() == dict.fromkeys(first, 1)

    open_page(page, airflow)
    page.get_by_text("txid 2 is held").wait_for()
    in_dialog(page, "Release…", None, "Release")
    page.get_by_role("button", name="Clear them in Airflow").wait_for()
    page.keyboard.press("Escape")  # somebody is called away
    in_dialog(page, "Clear…", None, "Look for such txids")
    page.get_by_role("button", name="Clear them in Airflow").click()
    page.get_by_text("1 run is cleared").wait_for()
    wait_for(lambda: dag.counted() == before, "the released txid to commit")
    run_id = dag.ledger_rows("run_id", "transaction", "txid")[-1][0]
    assert dag.tries(run_id)["emit", -1] == 1, "more than the tasks of the txid is cleared"


@pytest.mark.slow
def test_a_txid_that_cannot_be_processed_is_parked_and_then_skipped(page, airflow, dag):
    """Park and skip let the later ones commit."""
    [(run_id, day)] = dag.ledger_rows(
        "run_id, interval_start::date::text", "transaction", "txid DESC"
    )[:1]
    dag.deliver(day, "broken", file="b")
    dag.clear(run_id)
    ends = ("FAILED", "FENCED")
    wait_for(lambda: dag.attempts().get("3:0") in ends, "the first attempt at txid 3 to fail")
    open_page(page, airflow, "/txids/3")
    in_dialog(page, "Park…", "the file is broken", "Park")
    page.get_by_text("Txid 3 is parked").wait_for()
    wait_for(lambda: dag.ledger_rows("curr_txid", "topology", "1") == [(4,)], "txid 3 to commit")

    open_page(page, airflow, "/txids/3")
    in_dialog(page, "Skip…", "no better file will come", "Skip")
    page.get_by_text("Txid 3 is skipped for good").wait_for()
    [skipped] = dag.ledger_rows("txid, skipped_by, reason, ended_at", "skip", "txid")
    assert skipped == (3, "user", "no better file will come", None)


def test_the_links_of_a_task_lead_to_its_transaction(airflow, dag):
    """Airflow's own UI shows what its API answers here."""
    run_id = dag.ledger_rows("run_id", "transaction", "txid")[0][0]
    for step in ("process", "commit"):
        task = f"/api/v2/dags/{SECRET}/dagRuns/{run_id}/taskInstances/transaction.{step}"
        links = airflow.api().get(f"{task}/links", map_index=0)["extra_links"]
        transaction = f"{airflow.airflow.url}/reliability/dags/{SECRET}/txids/1"
        assert links == {
            "Transaction": transaction,
            "Spark UI": f"{transaction}/spark",
            "Blocking run": None,
        }


def test_the_tab_of_a_task_shows_its_transaction(page, airflow, dag):
    """From Airflow's own views one comes to the right transaction, and back."""
    run_id = dag.ledger_rows("run_id", "transaction", "txid")[0][0]
    emit = f"{airflow.airflow.url}/dags/{SECRET}/runs/{run_id}/tasks/emit"
    page.goto(f"{emit}/plugin/reliability-task")  # not mapped: it has the whole run
    page.frame_locator("iframe").get_by_role("heading", name=f"Run {run_id}").wait_for()
    page.goto(
        f"{airflow.airflow.url}/dags/{SECRET}/runs/{run_id}/tasks/transaction.commit/mapped/0"
        "/plugin/reliability-task"
    )
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name="Transaction 1").wait_for()
    frame.get_by_role("link", name=run_id).first.click()
    page.wait_for_url(f"**/dags/{SECRET}/runs/**")
    assert "/plugin/" not in page.url
