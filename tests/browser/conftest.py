"""The page served as Airflow serves it, and a browser that looks at it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import Request
from fastapi.responses import HTMLResponse

from tests.support.fix_page import Rights, airflow_with_page

#: What Airflow's UI is for the page: a document whose class is the theme, and a frame.
FRAME = """<!doctype html><html lang="en" class="{theme}"><head><title>Airflow</title>
<link rel="icon" href="data:,"></head><body><iframe title="page" src="{path}" width="1000"
height="700"></iframe></body></html>"""

#: Nothing is still asked for: three plots, or none.
DRAWN = """document.querySelectorAll(".uplot canvas, .empty-plot").length
           === document.querySelectorAll("[data-plot]").length"""


@dataclass
class Airflow:
    """Airflow's API server with the page, and what was asked of its API."""

    url: str
    rights: Rights = field(default_factory=Rights)
    asked: list[tuple[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="session")
def airflow(airflow_home) -> Iterator[Airflow]:
    rights = Rights()
    with airflow_with_page(rights) as app, socket.create_server(("127.0.0.1", 0)) as listening:
        found = Airflow(f"http://127.0.0.1:{listening.getsockname()[1]}", rights)

        def framed(path: str, theme: str) -> HTMLResponse:
            return HTMLResponse(FRAME.format(path=path, theme=theme))

        def run(dag_id: str, run_id: str) -> HTMLResponse:
            return HTMLResponse(FRAME.format(path="about:blank", theme="light"))

        async def new_run(dag_id: str, request: Request) -> dict[str, str]:
            found.asked.append((dag_id, await request.json()))
            return {"dag_run_id": "manual 1"}

        app.get("/framed")(framed)
        app.get("/dags/{dag_id}/runs/{run_id}")(run)
        app.post("/api/v2/dags/{dag_id}/dagRuns")(new_run)
        with served(app, listening):
            yield found


@contextmanager
def served(app: Any, listening: socket.socket) -> Iterator[None]:
    """Serve an application by a thread of this process."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@dataclass
class Watched:
    """A tab, and whatever it should not have said or asked for."""

    page: Any
    url: str
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "about:")):
            self.wrong.append(f"leaves the server: {request.url}")

    def _failed(self, request: Any) -> None:
        # a tab that leaves a page gives up what refreshes it
        if (request.resource_type, request.failure) != ("fetch", "net::ERR_ABORTED"):
            self.wrong.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status}: {response.url}")

    def until(self, expression: str, frame: Any = None) -> None:
        """Wait until this holds; the page forbids Playwright's own way, which evaluates texts."""
        deadline = time.monotonic() + 10
        while not (frame or self.page).evaluate(expression):
            assert time.monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def open(self, path: str) -> Any:
        """Load a page and wait for its plots."""
        self.page.goto(f"{self.url}{path}", wait_until="load")
        self.wait_for_plots()
        return self.page

    def wait_for_plots(self) -> None:
        self.until(DRAWN)

    def seen_after(self) -> float:
        """Return after how many seconds something could be seen of what was opened."""
        painted = "performance.getEntriesByName('first-contentful-paint')"
        self.until(f"{painted}.length > 0")
        return float(self.page.evaluate(f"{painted}[0].startTime")) / 1000


@pytest.fixture
def tab(browser, airflow, request, tmp_path) -> Iterator[Watched]:
    """A tab of its own; a test that fails leaves a picture of it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(10_000)
    watched = Watched(context.new_page(), airflow.url)
    failed_before = request.session.testsfailed
    yield watched
    if request.session.testsfailed > failed_before:
        watched.page.screenshot(path=tmp_path / "page.png", full_page=True)
        print(f"a picture of the page: {tmp_path / 'page.png'}")
    context.close()
    assert watched.wrong == []
