"""`make matrix`: try each combination of versions, and write what came of it to the docs.

    python -m dev.matrix                     all, one after the other
    python -m dev.matrix --only airflow3.0   those whose names have this in them

The results are kept: the table has the newest trial of each combination, with its day.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
from pathlib import Path

from dev.errors import DevError
from dev.matrix.environments import HOME, LOWEST, ROOT, Combination, folder_of, make
from dev.matrix.trial import Trial

#: The oldest and the newest of each, and every release between with one of the others.
COMBINATIONS = [
    Combination(airflow="3.3.2", spark="4.3.0", python="3.13", postgres=18),
    Combination(airflow="3.2.2", spark="4.3.0", python="3.12", postgres=17),
    Combination(airflow="3.1.8", spark="4.2.1", python="3.11", postgres=16),
    Combination(airflow="3.0.6", spark="4.0.5", python="3.12", postgres=15),
    Combination(airflow="3.3.2", spark="4.1.4", python="3.11", postgres=15),
    Combination(airflow="3.3.2", spark="4.0.5", python="3.11", postgres=18),
    Combination(airflow="3.0.6", spark="4.0.0", python="3.10", postgres=15, resolution=LOWEST),
]
STEPS = ("parse", "page", "batch", "replay", "kill")
RESULTS = HOME / "results.json"
PAGE = ROOT / "docs" / "deployment" / "versions.md"
BEGIN, END = "<!-- written by `make matrix` -->\n", "<!-- end -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.matrix", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], metavar="TEXT")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in COMBINATIONS if any(text in one.name for text in options.only)]
    failed = [one.name for one in chosen if not try_one(one)]
    print("\n" + table())
    if not options.no_page:
        write(PAGE, table())
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed or not chosen else 0


def try_one(combination: Combination) -> bool:
    """Make the environment of a combination, try it, and keep the result."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{combination.name} {time.monotonic() - started:4.0f} s  {text}", flush=True)

    outcome: dict[str, bool | str] = {}
    try:
        say("the environment is made")
        installed = make(combination)
        say(f"{len(installed.splitlines())} packages in {folder_of(combination)}")
        outcome = dict(Trial(combination, say).run())
    except DevError as error:
        say(f"no: {error}")
        outcome = {"failure": " ".join(str(error).split())[:300]}
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    known[combination.name] = {
        "day": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        "seconds": round(time.monotonic() - started),
        **outcome,
    }
    RESULTS.write_text(json.dumps(known, indent=2))
    return all(outcome.get(step) is True for step in STEPS)


def table() -> str:
    """Return what is known of all combinations, as Markdown."""
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    lines = [
        f"| Airflow | Spark | Python | Postgres | dependencies | {' | '.join(STEPS)} | day |",
        "|" + "---|" * (6 + len(STEPS)),
    ]
    for one in COMBINATIONS:
        if (result := known.get(one.name)) is None:
            continue
        cells = ["yes" if result.get(step) is True else "no" for step in STEPS]
        kept = "lower bounds" if one.resolution == LOWEST else "Airflow's day"
        versions = [one.airflow, one.spark, one.python, str(one.postgres), kept]
        lines.append(f"| {' | '.join([*versions, *cells, result['day']])} |")
        if failure := result.get("failure"):
            lines[-1] += f" {failure}"
    return "\n".join(lines) + "\n"


def write(page: Path, text: str) -> None:
    old = page.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert pattern.search(old), f"{page} has no place for the table"
    page.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", old))


if __name__ == "__main__":
    sys.exit(main())
