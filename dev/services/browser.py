"""Find a Chromium that tests can drive: the machine's own, else one that is fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from dev.errors import DevError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: It talks to nobody but the page, and needs no graphics.
OPTIONS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a browser of the machine; or install Debian's as root, or else Playwright's own.

    :raises DevError: there is none, and none can be installed
    """
    return installed(environment) or from_debian(environment) or from_playwright()


def options() -> list[str]:
    """Return how it is started; only root has to give up its sandbox."""
    return [*OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def installed(environment: Mapping[str, str]) -> Path | None:
    for name in NAMES:
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            return Path(found)
    return None


def from_debian(environment: Mapping[str, str]) -> Path | None:
    """Install Debian's Chromium, with the libraries and fonts that it needs."""
    apt = shutil.which("apt-get", path=environment.get("PATH"))
    if apt is None or os.geteuid() != 0:
        return None
    quiet = {**environment, "DEBIAN_FRONTEND": "noninteractive"}
    succeeds([apt, "-qq", "update"], quiet)  # if it fails, what is known may still do
    if not succeeds([apt, "-qq", "install", "-y", "--no-install-recommends", "chromium"], quiet):
        return None
    return installed(environment)


def from_playwright() -> Path:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = Path(playwright.chromium.executable_path)
    if not browser.is_file():
        succeeds([sys.executable, "-m", "playwright", "install", "chromium"], os.environ)
    if not browser.is_file():
        raise DevError(
            "no Chromium was found on the PATH, and none could be installed; on Debian and Ubuntu "
            "run: apt-get install chromium"
        )
    return browser


def succeeds(command: Iterable[str], environment: Mapping[str, str]) -> bool:
    """Say whether a command that installs something did so; what it writes is for the person."""
    done = subprocess.run([*command], env=dict(environment), stdout=sys.stderr, check=False)
    return done.returncode == 0
