"""Where the tests' browser comes from."""

from __future__ import annotations

import os

import pytest

from dev.services import browser
from dev.services.browser import find_browser, options

INSTALLS = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in *install*) printf '#!/bin/sh\\n' > {folder}/chromium; chmod +x {folder}/chromium;; esac
"""


def program(folder, name, text="#!/bin/sh\n"):
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file


def only(tmp_path):
    """An environment whose only programs are the test's own."""
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize("name", browser.NAMES)
def test_a_browser_of_the_machine_is_taken(tmp_path, name):
    file = program(tmp_path, name)
    assert find_browser(only(tmp_path)) == file


def test_root_installs_debians(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(tmp_path, "apt-get", INSTALLS.format(folder=tmp_path).replace("chmod", "/bin/chmod"))
    assert find_browser(only(tmp_path)) == tmp_path / "chromium"
    update, install = (tmp_path / "asked").read_text().splitlines()
    assert update == "-qq update"
    assert install.endswith("install -y --no-install-recommends chromium")


def test_others_take_playwrights(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(tmp_path, "apt-get", "#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(browser, "from_playwright", lambda: tmp_path / "fetched")
    assert find_browser(only(tmp_path)) == tmp_path / "fetched"


def test_only_root_gives_up_the_sandbox(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--no-sandbox" in options()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--no-sandbox" not in options()
