"""What was measured, as plain data, and the statistics of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

OURS = "this project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of one contestant.

    :param mode: `cold` or `warm`
    :param amount: rows, or whatever the case counts
    :param phases: the seconds of each phase, if the contestant tells them
    """

    case: str
    contestant: str
    mode: str
    seconds: float
    amount: int
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The newest measurements of each case, in one size.

    :param dates: case -> when it was measured
    :param machine: what the last run was on, in words
    :param settings: of the server
    :param missing: case and contestant -> why there is no measurement
    """

    dates: Mapping[str, str]
    size: Mapping[str, Any]
    machine: str
    settings: Mapping[str, str]
    measurements: Sequence[Measurement]
    missing: Mapping[str, str]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        data = json.loads(path.read_text())
        measurements = [Measurement(**one) for one in data.pop("measurements")]
        return cls(**data, measurements=measurements)

    def over(self, earlier: Results) -> Results:
        """Return these results, and those of an earlier run of the same size for other cases.

        >>> one = Results(dates={"a": "1st"}, size={}, machine="", settings={}, measurements=[],
        ...               missing={})
        >>> replace(one, dates={"b": "2nd"}).over(one).dates
        {'a': '1st', 'b': '2nd'}
        """
        if json.dumps(self.size) != json.dumps(earlier.size):
            return self
        kept = earlier.dates.keys() - self.dates.keys()
        others = [one for one in earlier.measurements if one.case in kept]
        reasons = {k: why for k, why in earlier.missing.items() if k.split(":")[0] in kept}
        return replace(
            self,
            dates={**{name: earlier.dates[name] for name in sorted(kept)}, **self.dates},
            measurements=[*others, *self.measurements],
            missing={**reasons, **self.missing},
        )

    def summaries(self, case: str, mode: str) -> list[Summary]:
        """Summarise each contestant of a case, in the order in which they ran."""
        found = [one for one in self.measurements if (one.case, one.mode) == (case, mode)]
        names = dict.fromkeys(one.contestant for one in found)
        return [summary([m for m in found if m.contestant == name]) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The runs of one contestant in one mode."""

    contestant: str
    n: int
    median: float
    least: float
    most: float
    amount: int
    phases: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Return how much was done in a second of the median."""
        return self.amount / self.median


def summary(runs: Sequence[Measurement]) -> Summary:
    """Summarise runs of one contestant; each phase has a median of its own.

    >>> runs = [Measurement(case="c", contestant="a", mode="warm", seconds=s, amount=8)
    ...         for s in (4.0, 1.0, 2.0)]
    >>> found = summary(runs)
    >>> found.n, found.median, found.least, found.most, found.rate
    (3, 2.0, 1.0, 4.0, 4.0)
    """
    seconds = [run.seconds for run in runs]
    return Summary(
        contestant=runs[0].contestant,
        n=len(runs),
        median=median(seconds),
        least=min(seconds),
        most=max(seconds),
        amount=runs[0].amount,
        phases={name: median(run.phases[name] for run in runs) for name in runs[0].phases},
    )


def ratios(summaries: Iterable[Summary]) -> dict[str, float]:
    """Return how many times the median of this project's first row each contestant takes.

    >>> runs = [Measurement(case="c", contestant=c, mode="warm", seconds=s, amount=8)
    ...         for c, s in (("this project", 2.0), ("a", 1.0))]
    >>> ratios([summary([run]) for run in runs])
    {'this project': 1.0, 'a': 0.5}
    """
    found = list(summaries)
    own = next((one.median for one in found if one.contestant.startswith(OURS)), None)
    return {one.contestant: one.median / own for one in found} if own else {}
