"""The page's application: what each address shows.

    /                                   topologies
    /dags/{topology}                      a topology: its txids on a timeline, plots, a calendar
    /dags/{topology}/txids/{txid}         a transaction
    /dags/{topology}/txids/{txid}/spark   Spark's UI of its newest attempt
    /dags/{topology}/runs?run_id=         what a run has asked for; with dag= if that has another id
    /dags/{topology}/explain?state=       which txids made a row
    /dags/{topology}/actions/…            changes (actions.py)
    /of-dag/{dag_id}                      the topology of a DAG, or its topologies
    /of-dag/{dag_id}/runs?run_id=         what a run of it has asked for

An address of a topology needs the permission to read the runs of one of its DAGs; a change, to
edit those of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import AfterValidator
from starlette.exceptions import HTTPException as StarletteHTTPException

from reliability.core.errors import (
    AttemptUnknown,
    NothingSelected,
    ReliabilityError,
    TopologyUnknown,
    Transient,
)
from reliability.core.txids import format_txids
from reliability.deployment.settings import spark_history
from reliability.transaction.inspect.explain import explain as explained
from reliability.transaction.inspect.overview import for_a_person, overviews
from reliability_airflow.page import access, actions, reading
from reliability_airflow.page.access import ReadableDags, User
from reliability_airflow.page.rendering import page_of, render
from reliability_airflow.page.transaction import read_transaction

STATIC = Path(__file__).with_name("static")
#: nothing is loaded from elsewhere, and only Airflow itself may show the page in a frame
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)


NOT_FOUND = (TopologyUnknown, AttemptUnknown, NothingSelected, reading.NotFound)


def make_app() -> FastAPI:
    """Return the application; without Airflow's login it gives nothing but its static files."""
    app = FastAPI(
        title="reliability",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[access.logged_in, access.has_possible_names],
    )
    access.prepare(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.get("/")(topologies)
    for path, lead in OF_DAG.items():
        app.get(path, dependencies=[access.may_read_dag])(lead)
    for path, function in READ.items():
        app.get(path, dependencies=[access.may_read])(function)
    for path, change in actions.CHANGES.items():
        needed = [access.may_act, access.may_correct, access.from_the_page]
        app.post(path, dependencies=needed)(change)
    app.exception_handler(ReliabilityError)(_show_error)
    app.exception_handler(StarletteHTTPException)(_show_refusal)
    app.exception_handler(RequestValidationError)(_show_invalid)
    app.middleware("http")(_add_headers)
    return app


# --- pages ---------------------------------------------------------------------------------------


def topologies(request: Request, user: User, readable: ReadableDags) -> Response:
    """Show the position of every topology whose DAG's runs the user may read."""
    return _list(request, user, readable, reading.dags_by_topology())


def _list(
    request: Request, user: User, readable: set[str], dags: Mapping[str, Sequence[str]]
) -> Response:
    with reading.reading() as tx:
        every = [overview for overview in overviews(tx) if overview.topology in dags]
    shown = [
        overview
        for overview in every
        if any(
            dag_id in readable and access.may_read_runs_of(user, dag_id)
            for dag_id in dags[overview.topology]
        )
    ]
    notes = {overview.topology: list(for_a_person(overview)) for overview in shown}
    others = len(every) - len(shown)
    return render(request, "topologies.html", overviews=shown, notes=notes, others=others)


def one_topology(
    request: Request,
    user: User,
    topology: str,
    last: int | None = None,
    size: int = 20,
    to: str = "",
) -> Response:
    """Show a topology, with its newest txids or those up to `last`."""
    if to:
        place = f"?last={reading.find_txid(topology, to)}&size={size}"
        return RedirectResponse(f"{page_of(request, topology)}{place}#timeline", 303)
    if size not in reading.SIZES:
        size = reading.SIZES[0]
    found = reading.read_topology(topology, last, size)
    return render(
        request,
        "topology.html",
        **found,
        last=last,
        sizes=reading.SIZES,
        notes=list(for_a_person(found["one"])),
        may_act=_may_act(user, topology),
        topology=topology,
    )


def _may_act(user: User, topology: str) -> bool:
    return all(access.may_act_on(user, dag_id) for dag_id in reading.dags_of(topology))


def of_dag(request: Request, user: User, readable: ReadableDags, dag_id: str) -> Response:
    """Lead to the topology of a DAG; list them if it has several."""
    return _lead(request, user, readable, dag_id, reading.dags_by_topology(dag_id=dag_id))


def of_run(
    request: Request,
    user: User,
    readable: ReadableDags,
    dag_id: str,
    run_id: str,
    map_index: str = "",
) -> Response:
    """Lead to what a run of a DAG has asked for."""
    dags = reading.dags_by_topology(dag_id=dag_id)
    asked = reading.topologies_of_run(dag_id, run_id)
    own = {name: dags[name] for name in asked if name in dags} or dags
    query = {"run_id": run_id, "dag": dag_id, "map_index": map_index}
    return _lead(request, user, readable, dag_id, own, f"/runs?{urlencode(query)}")


def _lead(
    request: Request,
    user: User,
    readable: set[str],
    dag_id: str,
    dags: Mapping[str, Sequence[str]],
    path: str = "",
) -> Response:
    if len(dags) > 1:
        return _list(request, user, readable, dags)
    topology = next(iter(dags), dag_id)
    return RedirectResponse(f"{page_of(request, topology)}{path}", 303)


OF_DAG: dict[str, Any] = {"/of-dag/{dag_id}": of_dag, "/of-dag/{dag_id}/runs": of_run}


def series(topology: str, last: int | None = None) -> Response:
    """Return what the plots show."""
    return JSONResponse(reading.read_series(topology, last))


def _asked_for(moment: datetime) -> datetime:
    """Return a moment of an address in UTC, which one without a time zone is in.

    :raises ValueError: UTC has no such year
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError("in UTC it is before the year 1 or after 9999") from error


Moment = Annotated[datetime, AfterValidator(_asked_for)]


def calendar(request: Request, topology: str, before: Moment | None = None) -> Response:
    """Show which intervals are complete."""
    found = reading.read_calendar(topology, before)
    return render(request, "calendar.html", **found, topology=topology)


def transaction(request: Request, user: User, topology: str, txid: int) -> Response:
    """Show everything that the ledger has of a transaction."""
    found = read_transaction(topology, txid)
    may_act = _may_act(user, topology)
    return render(request, "transaction.html", **found, topology=topology, may_act=may_act)


def spark(request: Request, topology: str, txid: int) -> Response:
    """Go to Spark's UI of the newest attempt: the application's, or the history server's."""
    for attempt in read_transaction(topology, txid)["attempts"]:
        for step in reversed(attempt.report.steps):
            if step["application_id"] is None:
                continue
            if place := attempt.ui_of(step) or spark_history(step["application_id"]):
                return RedirectResponse(place, 303)
    return RedirectResponse(f"{page_of(request, topology)}/txids/{txid}#attempts", 303)


def run(
    request: Request, user: User, topology: str, run_id: str, map_index: str = "", dag: str = ""
) -> Response:
    """Show what a run has asked for; for one of its mapped tasks, that transaction.

    :param dag: the id of the run's DAG, by default that of any
    :param map_index: what Airflow fills in; of a task that is not mapped it leaves `{MAP_INDEX}`
    """
    rows = reading.read_run(topology, dag, run_id)
    index = int(map_index) if map_index.isdecimal() and len(map_index) < 10 else len(rows)
    if index < len(rows):
        txid = rows[index]["txid"]
        return RedirectResponse(f"{page_of(request, topology)}/txids/{txid}", 303)
    return render(
        request,
        "run.html",
        topology=topology,
        dag_id=dag or next((row["dag_id"] for row in rows), topology),
        run_id=run_id,
        rows=rows,
        differences=reading.read_differences(topology, rows),
        is_done=bool(rows) and all(row["status"] != "OPEN" for row in rows),
        may_act=_may_act(user, topology),
    )


def chosen(topology: str, text: str) -> Response:
    """Return the txids that a person means, as a run's conf has them, and the DAG to trigger."""
    txids = format_txids(reading.choose_txids(topology, text))
    emitting, is_group = reading.emitting_dag(topology)
    return JSONResponse({"txids": txids, "dag_id": emitting, "is_group": is_group})


def explain(request: Request, topology: str, state: str = "") -> Response:
    """Show which txids made a row; the key's columns are parameters named `key.COLUMN`."""
    found, failure = None, None
    states = reading.read_states(topology)
    state = state or next((known.name for known in states), "")
    asked = request.query_params
    names = next((list(known.key) for known in states if known.name == state), [])
    key = {
        name: None if f"null.{name}" in asked else asked.get(f"key.{name}", "") for name in names
    }
    if state and (not names or any(f"key.{name}" in asked for name in names)):
        try:
            with reading.ledger() as connection:
                found = explained(
                    connection, topology, state, key, max_rows=reading.EXPLAINED, newest=True
                )
        except ReliabilityError as error:
            failure = error
    return render(
        request,
        "explain.html",
        topology=topology,
        states=states,
        state=state,
        most=reading.EXPLAINED,
        names=names,
        key=key,
        found=found,
        failure=failure,
    )


READ: dict[str, Any] = {
    "/dags/{topology}": one_topology,
    "/dags/{topology}/series": series,
    "/dags/{topology}/calendar": calendar,
    "/dags/{topology}/txids/{txid}": transaction,
    "/dags/{topology}/txids/{txid}/spark": spark,
    "/dags/{topology}/runs": run,
    "/dags/{topology}/chosen": chosen,
    "/dags/{topology}/explain": explain,
}


# --- errors and headers --------------------------------------------------------------------------


def _show_error(request: Request, error: Exception) -> Response:
    """Say what happened and what to do, with the error's code."""
    assert isinstance(error, ReliabilityError)
    unknown = isinstance(error, NOT_FOUND)
    status = 404 if unknown else 503 if isinstance(error, Transient) else 409
    topology = request.path_params.get("topology", "")
    error.about(topology=topology)
    return render(
        request,
        "part_error.html" if access.HEADER in request.headers else "error.html",
        status=status,
        error=error,
        is_no_topology=isinstance(error, TopologyUnknown),
        asked=topology,
    )


def _show_refusal(request: Request, error: Exception) -> Response:
    """Answer a program in JSON and a person in words: 401 and 403 offer Airflow's login."""
    assert isinstance(error, StarletteHTTPException)
    # the page's own script shows the answer in a dialog
    is_program = access.HEADER in request.headers
    if is_program or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, error.status_code)
    return render(
        request,
        "refused.html",
        status=error.status_code,
        detail=error.detail,
        here=quote(_address(request), safe="/"),
        is_forbidden=error.status_code in (401, 403),
    )


def _address(request: Request) -> str:
    """Return the address with its query, without which a run's page cannot be shown."""
    return f"{request.url.path}?{request.url.query}".removesuffix("?")


def _show_invalid(request: Request, error: Exception) -> Response:
    """Say which part of an address or of a form is not what it should be."""
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    return _show_refusal(request, HTTPException(422, wrong))


async def _add_headers(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers[access.HEADER] = "page"  # whatever else answers at this address has it not
    # without "no-cache" a browser would run the script of an older release with these pages
    is_static = "/static/" in request.url.path
    response.headers["Cache-Control"] = "no-cache" if is_static else "no-store"
    return response
