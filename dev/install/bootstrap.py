"""Make `.venv` from the lock: `python3 dev/install/bootstrap.py`. Python alone is enough for it.

Safe to call at any time: a stamp of what was installed makes a call with nothing to do
immediate, and an installation that was cut off is taken up again.
"""

from __future__ import annotations

import sys
from pathlib import Path

OLDEST_PYTHON = (3, 10)


def main() -> int:
    # Checked before any other import: those modules do not even compile on an older Python.
    if sys.version_info[:2] < OLDEST_PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:3])
        print(f"Python 3.10 or newer is needed, this is {found}: make PYTHON=python3.12 setup")
        return 1
    # Run as a file, Python would look for modules in dev/ instead of in the clone.
    root = Path(__file__).resolve().parents[2]
    sys.path[0] = str(root)
    from dev.install.installation import install

    return install(root)


if __name__ == "__main__":
    sys.exit(main())
