"""What the set-up finds on a machine, or makes of it: Java, Postgres, a browser, room in memory."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from dev.services import browser
from dev.services.accounts import AN_HOUR, LEAST_BYTES, memory
from dev.services.browser import find_browser, options
from dev.services.credentials import Credentials
from dev.services.environment import Environment
from dev.services.java import VECTOR_MODULE, make_home, parse_major, parse_properties
from dev.services.postgres_binaries import parse_major as parse_postgres_major
from dev.services.spark_conf import join
from tests.support.fix_postgres import ROOT


def program(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


PYTHON = """#!/bin/sh
case "$*" in *venv*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo >> made;; esac
"""


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_clone_that_was_moved_gets_a_new_virtual_environment(tmp_path, is_cut_off):
    """Its scripts began with the path of the old place, as of a clone that was copied."""
    env = {**os.environ, "PYTHON": str(program(tmp_path / "python", PYTHON))}
    place = tmp_path / "old"
    program(place / "dev" / "setup", (ROOT / "dev" / "setup").read_text())
    for made in (1, 1, 2, 2):
        if made == 2:
            place = place.rename(tmp_path / "new")
        subprocess.run([place / "dev" / "setup"], env=env, check=True)
        assert (place / "made").read_text() == "\n" * made
        if is_cut_off:
            (place / ".venv" / "installed").rename(place / ".venv" / "installing")


def test_java_versions_old_and_new_are_understood():
    versions = ("17.0.15+6-Debian", "21.0.8+9-LTS", "25-ea", "1.8.0_4")
    assert [parse_major(text) for text in versions] == [17, 21, 25, 8]


def test_the_java_home_drops_one_option_and_is_the_runtime_otherwise(tmp_path):
    runtime = tmp_path / "runtime"
    program(runtime / "bin" / "java", "#!/bin/sh\nprintf '%s|' \"$@\"\n")
    (runtime / "lib").mkdir()
    home = make_home(runtime, tmp_path)
    command = [str(home / "bin" / "java"), VECTOR_MODULE, "-cp", "a b"]
    assert subprocess.check_output(command, text=True) == "-cp|a b|"
    assert (home / "lib").resolve() == runtime / "lib"
    assert make_home(runtime, tmp_path) == home


def test_java_tells_its_home_among_other_properties():
    said = "Property settings:\n    java.home = /opt/java 17\n    java.runtime.version = 17.0.1+1\n"
    assert parse_properties(said)["java.home"] == "/opt/java 17"


def test_postgres_version_of_a_distribution_and_of_a_beta():
    assert parse_postgres_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)") == 15
    assert parse_postgres_major("postgres (PostgreSQL) 18beta1") == 18
    assert parse_postgres_major("no such thing") == 0


def test_options_with_blanks_are_quoted_for_the_launcher_of_spark():
    assert join(["-Da=b", "-Dfile=/my files/x"]) == '-Da=b "-Dfile=/my files/x"'


def test_services_that_a_person_added_stay(tmp_path):
    credentials = Credentials(state_dir=tmp_path, store=tmp_path / "data" / "passwords.json")
    credentials.write_libpq_files(5432)
    services, passwords = credentials.service_file, credentials.pass_file
    services.write_text(services.read_text() + "[mart]\nhost=db\n")
    passwords.write_text(passwords.read_text() + "db:5:*:a:b\n")
    credentials.write_libpq_files(5433)
    assert services.read_text().endswith("[mart]\nhost=db\n")
    assert "port=5433" in services.read_text()
    assert "port=5432" not in services.read_text()
    assert passwords.read_text().endswith("db:5:*:a:b\n")


def test_what_leads_to_a_server_of_the_users_is_forgotten(tmp_path, monkeypatch):
    """The demo, which reads its tables itself, could not log in."""
    mine = {name: "mine" for name in ("PGHOSTADDR", "PGSERVICEFILE", "RELIABILITY_CREDENTIALS")}
    monkeypatch.setattr(os, "environ", os.environ | mine)
    Environment(ROOT, tmp_path).enter()
    assert mine.keys() & os.environ.keys() == {"PGSERVICEFILE"}
    assert os.environ["PGSERVICEFILE"] == str(tmp_path / "pg_service.conf")


# --- a browser -----------------------------------------------------------------------------------

INSTALLS = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in *install*) printf '#!/bin/sh\\n' > {folder}/chromium; chmod +x {folder}/chromium;; esac
"""


def only(tmp_path):
    """An environment whose only programs are the test's own."""
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize("name", browser.NAMES)
def test_a_browser_of_the_machine_is_taken(tmp_path, name):
    file = program(tmp_path / name)
    assert find_browser(only(tmp_path)) == file


def test_root_installs_debians(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(tmp_path / "apt-get", INSTALLS.format(folder=tmp_path).replace("chmod", "/bin/chmod"))
    assert find_browser(only(tmp_path)) == tmp_path / "chromium"
    update, install = (tmp_path / "asked").read_text().splitlines()
    assert update == "-qq update"
    assert install.endswith("install -y --no-install-recommends chromium")


def test_others_take_playwrights(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(tmp_path / "apt-get", "#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(browser, "from_playwright", lambda: tmp_path / "fetched")
    assert find_browser(only(tmp_path)) == tmp_path / "fetched"


def test_only_root_gives_up_the_sandbox(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--no-sandbox" in options()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--no-sandbox" not in options()


# --- memory --------------------------------------------------------------------------------------


@pytest.fixture
def room(monkeypatch):
    """Return a function that says how many bytes are free."""

    def has(free):
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))

    has(LEAST_BYTES)
    return has


def test_a_folder_with_enough_room_is_taken_and_no_other(tmp_path, room):
    assert memory(tmp_path) == tmp_path
    assert memory(tmp_path / "none") is None
    room(LEAST_BYTES - 1)
    assert memory(tmp_path) is None


@pytest.mark.parametrize(
    ("age", "pid", "is_kept"),
    [
        (AN_HOUR, os.getpid(), True),
        (AN_HOUR, 2**22 + 1, False),
        (AN_HOUR, None, False),
        (0, None, True),
    ],
    ids=["it runs", "it was killed", "it never ran", "it is about to run"],
)
def test_what_a_killed_run_left_is_deleted(tmp_path, room, age, pid, is_kept):
    place = tmp_path / f"reliability-{os.getuid()}-x"
    data = place / "postgres" / "data"
    data.mkdir(parents=True)
    if pid is not None:
        (data / "postmaster.pid").write_text(f"{pid}\n/somewhere\n")
    then = place.stat().st_mtime - age - 1
    os.utime(place, (then, then))
    memory(tmp_path)
    assert place.exists() == is_kept
