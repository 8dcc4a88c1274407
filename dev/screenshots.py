"""`make screenshots`: the pictures of README and docs, taken of the demo in a real browser.

It uses the demo that `make demo KEEP=1` has left running; if there is none, it runs it, and stops
it at the end. The last picture is of a blocked topology: two txids are rolled back and released,
and no run works on them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dev.errors import DevError
from dev.services.browser import find_browser, options
from dev.services.environment import Environment

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
DEMO = "/reliability/dags/cdnow_revenue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a picture shows.

    :param opens: the button of a dialog that is opened, and filled in
    """

    name: str
    path: str
    theme: Literal["light", "dark"] = "light"
    width: int = 1280
    height: int = 800
    opens: str = ""


PICTURES = (
    Picture(name="page-topologies", path="/plugin/reliability", height=420),
    Picture(name="page-topology", path=f"{DEMO}?last=24", height=820),
    Picture(name="page-transaction", path=f"{DEMO}/txids/TXID", height=900),
    Picture(name="page-calendar", path=f"{DEMO}/calendar", height=420),
    Picture(name="page-rollback", path=f"{DEMO}/txids/12", height=620, opens="Roll back to here…"),
    Picture(
        name="page-tab",
        path="/dags/cdnow_revenue/plugin/reliability-dag",
        theme="dark",
        width=1440,
        height=820,
    ),
)


BLOCKED = Picture(name="page-blocked", path=DEMO, height=640)
BLOCK = (
    ("rollback", "cdnow_revenue", "19", "--yes", "--reason", "for a picture"),
    ("release", "cdnow_revenue"),
)


def main() -> int:
    environment = Environment(ROOT, ROOT / ".reliability" / "demo", profile="demo")
    was_up = len(environment.airflow.healthy()) > 0
    if not was_up:
        demo = [sys.executable, "-m", "dev.demo"]
        if subprocess.run(demo, cwd=ROOT, env={**os.environ, "KEEP": "1"}, check=False).returncode:
            raise DevError("the demo failed, so there is nothing to take pictures of")
    try:
        take(environment, PICTURES)
        for arguments in BLOCK:
            program = str(ROOT / ".venv" / "bin" / "reliability")
            subprocess.run([program, *arguments], env=environment.env(), check=True)
        take(environment, [BLOCKED])
    finally:
        if not was_up:
            environment.down()
    return 0


def take(environment: Environment, pictures: Iterable[Picture]) -> None:
    from playwright.sync_api import sync_playwright

    url, token = environment.airflow.url, environment.api().token()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=options())
        for picture in pictures:
            context = browser.new_context(
                viewport={"width": picture.width, "height": picture.height},
                color_scheme=picture.theme,
                device_scale_factor=1.5,
            )
            context.add_cookies([{"name": "_token", "value": token, "url": url}])
            _take(context.new_page(), url, picture)
            context.close()
            print(f"  docs/images/{picture.name}.png")
        browser.close()


def _take(page: Any, url: str, picture: Picture) -> None:
    path = picture.path
    if "TXID" in path:
        path = path.replace("TXID", _txid_with_two_attempts(page, url))
    page.goto(f"{url}{path}")
    page.wait_for_load_state("networkidle")
    if picture.opens:
        page.get_by_role("button", name=picture.opens).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("the files of 1998 were delivered twice")
        dialog.get_by_role("button", name="Try it first").click()
        page.get_by_text("nothing has changed").wait_for()
    if "/plugin/" in path:
        page.frame_locator("iframe").locator("h1").wait_for()
    page.wait_for_timeout(500)  # the plots draw themselves
    page.screenshot(path=IMAGES / f"{picture.name}.png")


def _txid_with_two_attempts(page: Any, url: str) -> str:
    """Return the txid whose driver the demo has killed."""
    page.goto(f"{url}{DEMO}?size=50")
    row = page.locator("table.timeline tbody tr").filter(has=page.locator(".mark.fenced")).first
    return str(row.locator("th a").inner_text())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DevError as error:
        print(f"screenshots failed: {error}", file=sys.stderr)
        sys.exit(1)
