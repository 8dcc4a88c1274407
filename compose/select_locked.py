"""Print the part of a lock that one of its roots asks for: an image needs no linter.

    python3 select_locked.py requirements.lock "airflow-provider-reliability (pyproject.toml)"

Reads the lock's own `# via` comments, which say who asks for each package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path


def entries(text: str) -> Iterator[tuple[str, str]]:
    """Split a lock into (package, lines), in the lock's order."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if lines and not line.startswith(" "):
            yield lines[0].partition("==")[0], "".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield lines[0].partition("==")[0], "".join(lines)


def asked_for_by(entry: str) -> set[str]:
    """Return whom an entry's comment names, after `# via` or in lines of its own."""
    comments = (line.strip() for line in entry.splitlines() if line.strip().startswith("#"))
    return {comment.lstrip("# ").removeprefix("via").strip() for comment in comments} - {""}


def select(text: str, root: str) -> str:
    """Return the entries that are the root, or are asked for by what is selected."""
    all_entries = list(entries(text))
    selected = {root}
    while True:
        found = {name for name, entry in all_entries if asked_for_by(entry) & selected}
        if found <= selected:
            return "".join(entry for name, entry in all_entries if name in selected)
        selected |= found


if __name__ == "__main__":
    sys.stdout.write(select(Path(sys.argv[1]).read_text(), sys.argv[2]))
