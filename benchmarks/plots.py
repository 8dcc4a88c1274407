"""Draw a case's warm seconds as SVG; run by the benchmarks' own Python.

    python -m benchmarks.plots FOLDER <PLOTS

What is drawn is that of `report.plot`, as JSON, by case. The colours are readable on a light and on
a dark page, and the background is transparent. Equal results give equal files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

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
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for case, plot in json.load(sys.stdin).items():
            draw(plot, folder / f"bench-{case}.svg")


def draw(plot: dict[str, Any], path: Path) -> None:
    """Draw a bar for each contestant, from the first at the top; limits are pale."""
    from matplotlib.figure import Figure

    bars: dict[str, dict[str, Any]] = plot["bars"]
    figure = Figure(figsize=(8, 1 + 0.34 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for place, (name, bar) in enumerate(bars.items()):
        draw_bar(axes, place, bar, plot["phases"].get(name, {}))
    axes.set_yticks(range(len(bars)), [*bars])
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds, {plot['mode']}; median, least and most")
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper right", ncols=len(PHASES), frameon=False, fontsize=8)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def draw_bar(axes: Any, place: int, bar: dict[str, Any], phases: dict[str, float]) -> None:
    """Draw the median, split by phase where it is known, and the spread."""
    start = 0.0
    is_first = not axes.patches
    for (name, length), colour in zip(phases.items(), PHASES, strict=False):
        label = name if is_first else None
        axes.barh(place, length, left=start, color=colour, height=0.6, label=label)
        start += length
    median = bar["median"]
    if not phases:
        colour = PALE if bar["is_limit"] else PHASES[1] if bar["is_ours"] else BLUE
        axes.barh(place, median, color=colour, height=0.6)
    spread = [[median - bar["min"]], [bar["max"] - median]]
    axes.errorbar(median, place, xerr=spread, color=GREY, capsize=3, linewidth=1)


if __name__ == "__main__":
    main()
