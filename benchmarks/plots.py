"""Draw a case's warm seconds as SVG; run by the benchmarks' own Python.

    python -m benchmarks.plots RESULTS FOLDER

The colours are readable on a light and on a dark page, and the background is transparent. Equal
results give equal files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.cases.all import CASES
from benchmarks.results import OURS, Results, Summary

mpl.use("svg")
GREY, BLUE, PALE = "#808890", "#4c8fd6", "#4c8fd680"
PHASES = ("#e8a33d", "#d9772b", "#b85a1e", "#96430f", "#7a3409")
STYLE = {
    "svg.hashsalt": "benchmarks",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def main() -> None:
    """Draw all cases of the results."""
    results, folder = Results.load(Path(sys.argv[1])), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for case in dict.fromkeys(one.case for one in results.measurements):
        with mpl.rc_context(STYLE):
            draw(case, *shown(results, case), folder / f"bench-{case}.svg")


def shown(results: Results, case: str) -> tuple[str, Sequence[Summary]]:
    """Return the warm runs of a case, or the cold ones if it has no others."""
    warm = results.summaries(case, "warm")
    return ("warm", warm) if warm else ("cold", results.summaries(case, "cold"))


def draw(case: str, mode: str, summaries: Sequence[Summary], path: Path) -> None:
    """Draw a bar for each contestant, from the first at the top; limits are pale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1 + 0.34 * len(summaries)), layout="constrained")
    axes = figure.subplots()
    limits = {one.label for one in CASES[case].entries if one.contestant.is_limit}
    for place, one in enumerate(summaries):
        draw_bar(axes, place, one, is_limit=one.contestant in limits)
    axes.set_yticks(range(len(summaries)), [one.contestant for one in summaries])
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds, {mode}; median, least and most")
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper right", ncols=len(PHASES), frameon=False, fontsize=8)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def draw_bar(axes: Any, place: int, one: Summary, *, is_limit: bool) -> None:
    """Draw the median, split by phase where it is known, and the spread."""
    start = 0.0
    is_first = not axes.patches
    for (name, length), colour in zip(one.phases.items(), PHASES, strict=False):
        label = name if is_first else None
        axes.barh(place, length, left=start, color=colour, height=0.6, label=label)
        start += length
    if not one.phases:
        axes.barh(place, one.median, color=colour_of(one, is_limit=is_limit), height=0.6)
    spread = [[one.median - one.least], [one.most - one.median]]
    axes.errorbar(one.median, place, xerr=spread, color=GREY, capsize=3, linewidth=1)


def colour_of(one: Summary, *, is_limit: bool) -> str:
    """Return the colour of a bar without phases."""
    if is_limit:
        return PALE
    return PHASES[1] if one.contestant.startswith(OURS) else BLUE


if __name__ == "__main__":
    main()
