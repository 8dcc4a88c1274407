"""The container set-up, made and tried out: `python3 -m dev.compose secrets | verify`.

`secrets` needs Python alone: it is called on a fresh clone with nothing installed but Docker.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from dev.compose.secrets import write_secrets
from dev.errors import DevError

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m dev.compose", description=__doc__)
    parser.add_argument("command", choices=["secrets", "verify"])
    # A plain kill, as of a CI job that is cancelled, must not leave the containers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if parser.parse_args().command == "verify":
            from dev.compose.verify import verify

            return verify(ROOT)
        folder = write_secrets(ROOT).relative_to(ROOT)
    except DevError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"secrets are in {folder}; Airflow's user is admin, {folder}/airflow_passwords has the")
    print("password. Next: docker compose up -d --build --wait")
    return 0


if __name__ == "__main__":
    sys.exit(main())
