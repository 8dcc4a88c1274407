"""Topologies for tests of Airflow's dates: a folder of Parquet files a day, its words counted.

`DATES_FOLDER` is the tests' own; spark-submit's stand-in (`stand_in.py`) processes them. The word
`broken` fails an attempt, unless it is counted as another.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from reliability import Count, FileSpout, State, Topology

BROKEN = "broken"
FOLDER = os.environ.get("DATES_FOLDER", "dates")


def words(name: str, module: str = __name__) -> Topology:
    """Return a topology that counts the words of `FOLDER/name/YYYY-MM-DD/`."""

    def counted(batch: Any) -> dict[str, Any]:
        return {name: list(map(partial(_read, _code(name)), batch))}

    return Topology(
        name,
        spout=FileSpout(
            f"{FOLDER}/{name}/{{data_interval_start:%Y-%m-%d}}/*.parquet", allow_empty=True
        ),
        process=counted,
        states=[State(name, key={"word": "text"}, values={"times": Count()})],
        max_spout_pending=2,
        module=module,
    )


def _code(name: str) -> dict[str, str]:
    """Return which word to count as which: the code that a test deploys."""
    file = Path(FOLDER) / name / "read_as.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _read(code: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
    word = code.get(row["word"], row["word"])
    if word == BROKEN:
        raise ValueError(BROKEN)
    return {**row, "word": word}


def note(topology: str, txid: int) -> None:
    """Side work of a txid that its run has committed."""
    with (Path(FOLDER) / topology / "noted").open("a") as file:
        file.write(f"{txid}\n")


held = words("words_held")
placed = words("words_placed")
early = words("words_early")
dry_run = words("words_dry_run")
chosen = words("words_chosen")
reshaped = words("words_reshaped")
cleared = words("words_cleared")
twice = words("words_twice")
told = words("words_told")
between = words("words_between")
joined = words("words_joined")
outage = words("words_outage")
late = words("words_late")
outage_long = words("words_outage_long")
late_long = words("words_late_long")
without_api = words("words_without_api")
before_api = words("words_before_api")
backlog = words("words_backlog")
ordered = words("words_ordered")
lowered = words("words_lowered")
raised = words("words_raised")
remade = words("words_remade")
red = words("words_red")
retried = words("words_retried")
overridden = words("words_overridden")
blocked = words("words_blocked")
crowded = words("words_crowded")
paged = words("words_paged")
traced = words("words_traced")
