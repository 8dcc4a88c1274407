"""Write the tables of a run: to the terminal, and with plots into docs/internals/benchmarks.md."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from benchmarks import environment
from benchmarks.cases import Case
from benchmarks.cases.all import CASES
from benchmarks.places import IMAGES, PAGE, RESULTS, ROOT
from benchmarks.results import Results, Summary, ratios
from benchmarks.sizes import Size

BEGIN = "<!-- written by `python -m benchmarks report` -->\n"
END = "<!-- end of what it writes -->\n"
WIDTH = 110


def write_report() -> None:
    """Replace the section of the page of benchmarks, and draw its plots, from the last run."""
    environment.install()
    results = Results.load(RESULTS)
    PAGE.write_text(replaced(PAGE.read_text(), section(results)))
    plots = [str(environment.PYTHON), "-m", "benchmarks.plots", str(RESULTS), str(IMAGES)]
    subprocess.run(plots, cwd=ROOT, check=True)


def print_tables(results: Results) -> None:
    """Print the tables without the plots."""
    for case in measured(results):
        print("\n".join(tables(results, case)))
    print("\n".join(missing(results.missing)))


def replaced(page: str, text: str) -> str:
    """Return the page with another text between the marks.

    >>> replaced(f"a\\n{BEGIN}old\\n{END}b\\n", "new\\n") == f"a\\n{BEGIN}new\\n{END}b\\n"
    True
    """
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{text}{END}{after}"


def section(results: Results) -> str:
    """Return the whole section."""
    blocks = [conditions(results), promises(results)]
    for case in measured(results):
        image = f"![{case.title}: seconds](../images/bench-{case.name}.svg)"
        blocks.append("\n".join([*tables(results, case), "", image]))
    return "\n\n".join([*blocks, *missing(results.missing)]) + "\n"


def conditions(results: Results) -> str:
    """Say when, where and with which server it was measured."""
    settings = ", ".join(f"{name} {value}" for name, value in results.settings.items())
    dates = " and ".join(sorted({*results.dates.values()}))
    return wrapped(
        f"Measured on {dates}, size `{results.size['name']}`, on one machine: "
        f"{results.machine}. All contestants used one Postgres: {settings}; the rest is as by "
        "default. Every Spark ran as `local[2]`."
    )


def promises(results: Results) -> str:
    """Say what each contestant promises if its job is tried again."""
    found = {
        entry.contestant.label: entry.contestant.promise
        for case in measured(results)
        for entry in case.entries
        if not entry.contestant.is_limit
    }
    rows = [f"| {label} | {promise} |" for label, promise in found.items()]
    return "\n".join(["| contestant | if its job is tried again |", "|---|---|", *rows])


def measured(results: Results) -> list[Case]:
    """Return the cases that the run has."""
    names = {one.case for one in results.measurements}
    return [case for case in CASES.values() if case.name in names]


def tables(results: Results, case: Case) -> Iterator[str]:
    """Yield the lines of a case."""
    yield f"### {case.title}\n"
    yield wrapped(case.what(Size(**results.size)))
    limits = {entry.label for entry in case.entries if entry.contestant.is_limit}
    for mode in ("warm", "cold"):
        if summaries := results.summaries(case.name, mode):
            yield f"\n{mode.capitalize()}:\n"
            yield from table(summaries, case.unit, limits)
    yield from phases(results.summaries(case.name, "warm"))


def table(summaries: Sequence[Summary], unit: str, limits: set[str]) -> Iterator[str]:
    """Yield a row for each contestant; with a rate, if more than one thing was done."""
    has_rate = summaries[0].amount > 1
    head = ["", "s", "least to most", "n", *([f"{unit}/s"] if has_rate else []), "ratio"]
    yield line(head)
    yield f"|{'---|' * len(head)}"
    ratio = ratios(summaries)
    for one in summaries:
        name = f"*{one.contestant}*" if one.contestant in limits else one.contestant
        spread = f"{seconds(one.least)} to {seconds(one.most)}"
        times = f"{ratio[one.contestant]:.2f}" if ratio else ""
        done = [rate(one.rate)] if has_rate else []
        yield line([name, seconds(one.median), spread, str(one.n), *done, times])


def line(cells: Sequence[str]) -> str:
    """Return a line of a table.

    >>> line(["", "a", "b"])
    '| | a | b |'
    """
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def phases(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield where the time of this project goes."""
    for one in summaries:
        if one.phases:
            parts = ", ".join(f"{name} {seconds(s)}" for name, s in one.phases.items())
            yield "\n" + wrapped(f"The warm seconds of {one.contestant}: {parts}.")


def missing(reasons: Mapping[str, str]) -> list[str]:
    """Return what was not measured, as one block."""
    lines = [f"- Not measured: {what}: {why}" for what, why in reasons.items()]
    return ["\n".join(lines)] if lines else []


def wrapped(text: str) -> str:
    """Break a paragraph into the lines of a page."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def seconds(value: float) -> str:
    """Write seconds with three digits.

    >>> [seconds(value) for value in (0.01234, 0.5, 12.34, 123.4)]
    ['0.012', '0.50', '12.3', '123']
    """
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def rate(value: float) -> str:
    """Write a rate: whole numbers, thousands marked.

    >>> [rate(value) for value in (0.25, 12.5, 1234567.8)]
    ['0.25', '12', '1,230,000']
    """
    if value < 10:
        return f"{value:.2g}"
    return f"{int(float(f'{value:.3g}')):,}"
