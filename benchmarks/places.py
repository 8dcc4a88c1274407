"""Where the suite keeps what it installs, generates and finds out."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".reliability" / "bench"
LOGS = HOME / "workers"
VENV = HOME / "venv"  # of the peers
PYTHON = VENV / "bin" / "python"
IMAGES = ROOT / "docs" / "images"
PAGE = ROOT / "docs" / "internals" / "benchmarks.md"
JDBC_JAR = Path("/usr/share/java/postgresql.jar")
