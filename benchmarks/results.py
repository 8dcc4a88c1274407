"""What was measured, as plain data, and the statistics of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd

OURS = "this project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of one contestant.

    :param mode: `cold` or `warm`
    :param phases: the seconds of each phase, if the contestant tells them
    """

    contestant: str
    mode: str
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The newest measurements of one case, in one size.

    :param date: when it was measured
    :param machine: what it was on, in words
    :param settings: of the server
    :param amount: rows, or whatever the case counts
    :param missing: contestant -> why there is no measurement
    """

    case: str
    date: str
    size: Mapping[str, Any]
    machine: str
    settings: Mapping[str, str]
    amount: int
    measurements: Sequence[Measurement]
    missing: Mapping[str, str]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.case}.json").write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path, case: str) -> Results | None:
        """Read what `save` wrote, if it did."""
        path = folder / f"{case}.json"
        if not path.is_file():
            return None
        data = json.loads(path.read_text())
        measurements = [Measurement(**one) for one in data.pop("measurements")]
        return cls(**data, measurements=measurements)

    def summaries(self, mode: str) -> pd.DataFrame:
        """Summarise each contestant, in the order in which they ran.

        A row has how often it ran, the median of its seconds, the least and the most, and the ratio
        of its median to that of this project's first row.
        """
        rows = self._runs(mode).groupby("contestant", sort=False)["seconds"]
        found = rows.agg(["size", "median", "min", "max"])
        own = found["median"][found.index.str.startswith(OURS)]
        return found.assign(ratio=found["median"] / own.iloc[0] if len(own) else None)

    def phases(self, mode: str) -> pd.DataFrame:
        """Return the median of each phase, a row for each contestant that tells its phases."""
        runs = self._runs(mode)
        phases = pd.DataFrame([*runs["phases"]], index=runs["contestant"]).dropna(how="all")
        return phases.groupby(level=0, sort=False).median()

    def _runs(self, mode: str) -> pd.DataFrame:
        names = [field.name for field in fields(Measurement)]
        return pd.DataFrame(
            [asdict(one) for one in self.measurements if one.mode == mode], columns=names
        )
