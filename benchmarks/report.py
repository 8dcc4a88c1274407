"""Write the tables of a run: to the terminal, and with plots into docs/internals/benchmarks.md."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from benchmarks.cases import CASES, Case
from benchmarks.environment import install
from benchmarks.places import IMAGES, PAGE, PYTHON, ROOT
from benchmarks.results import OURS, Results
from benchmarks.sizes import Size

BEGIN = "<!-- written by `python -m benchmarks report` -->\n"
END = "<!-- end of what it writes -->\n"
WIDTH = 110


def write_report(size: Size) -> None:
    install()
    loaded = (Results.load(size.results, name) for name in CASES)
    found = [results for results in loaded if results and results.measurements]
    PAGE.write_text(replaced(PAGE.read_text(), section(found)))
    plots = {one.case: plot(one) for one in found}
    command = [str(PYTHON), "-m", "benchmarks.plots", str(IMAGES)]
    subprocess.run(command, cwd=ROOT, check=True, input=json.dumps(plots), text=True)


def print_tables(found: Iterable[Results]) -> None:
    for results in found:
        print("\n".join([*(tables(results) if results.measurements else ()), *missing(results)]))


def replaced(page: str, text: str) -> str:
    """Return the page with another text between the marks.

    >>> replaced(f"a\\n{BEGIN}old\\n{END}b\\n", "new\\n") == f"a\\n{BEGIN}new\\n{END}b\\n"
    True
    """
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{text}{END}{after}"


def section(found: Sequence[Results]) -> str:
    blocks = [conditions(found), promises(found)]
    for results in found:
        image = f"![{case_of(results).title}: seconds](../images/bench-{results.case}.svg)"
        blocks.append("\n".join([*tables(results), "", image]))
    reasons = [line for results in found for line in missing(results)]
    return "\n\n".join([*blocks, *(["\n".join(reasons)] if reasons else [])]) + "\n"


def conditions(found: Sequence[Results]) -> str:
    """Say when, where and with which server it was measured."""
    last = max(found, key=lambda results: results.date)
    settings = ", ".join(f"{name} {value}" for name, value in last.settings.items())
    dates = " and ".join(sorted({results.date for results in found}))
    return wrapped(
        f"Measured on {dates}, size `{last.size['name']}`, on one machine: {last.machine}. All "
        f"contestants used one Postgres: {settings}; the rest is as by default. Every Spark ran as "
        "`local[2]`."
    )


def promises(found: Iterable[Results]) -> str:
    """Say what each contestant promises if its job is tried again."""
    promised = {
        entry.contestant.label: entry.contestant.promise
        for results in found
        for entry in case_of(results).entries
        if not entry.contestant.is_limit
    }
    rows = [f"| {label} | {promise} |" for label, promise in promised.items()]
    return "\n".join(["| contestant | if its job is tried again |", "|---|---|", *rows])


def case_of(results: Results) -> Case:
    return CASES[results.case]


def tables(results: Results) -> Iterator[str]:
    case = case_of(results)
    yield f"### {case.title}\n"
    modes = {mode: results.summaries(mode) for mode in ("warm", "cold")}
    modes = {mode: found for mode, found in modes.items() if len(found)}
    counts = " and ".join(f"{found['size'].max()} {mode}" for mode, found in modes.items())
    yield wrapped(f"{case.what(Size(**results.size))} Medians of {counts} runs.") + "\n"
    shown = [columns(mode, found, results) for mode, found in modes.items()]
    yield from table(pd.concat(shown, axis=1), limits(case))
    for name, phases in results.phases("warm").iterrows():
        parts = ", ".join(f"{phase} {seconds(s)}" for phase, s in phases.dropna().items())
        yield "\n" + wrapped(f"The warm seconds of {name}: {parts}.")


def columns(mode: str, found: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return a mode's columns as texts; with a rate, if more than one thing was done."""
    texts = {
        f"{mode}, s": found["median"].map(seconds),
        "range": found["min"].map(seconds) + "–" + found["max"].map(seconds),
    }
    if mode == "warm" and results.amount > 1:
        texts[f"{case_of(results).unit}/s"] = (results.amount / found["median"]).map(rate)
    return pd.DataFrame({**texts, "ratio": found["ratio"].map("{:.2f}".format, na_action="ignore")})


def table(texts: pd.DataFrame, limits: Collection[str]) -> Iterator[str]:
    yield line(["", *texts])
    yield f"|{'---|' * (1 + len(texts.columns))}"
    for name, cells in zip(texts.index, texts.fillna("").to_numpy(), strict=True):
        yield line([f"*{name}*" if name in limits else name, *cells])


def limits(case: Case) -> set[str]:
    """Return the rows that show what Postgres alone can do."""
    return {entry.label for entry in case.entries if entry.contestant.is_limit}


def plot(results: Results) -> dict[str, Any]:
    """Return what `plots` draws: a case's warm runs, or the cold ones if it has no others."""
    mode = "warm" if len(results.summaries("warm")) else "cold"
    found, phases = results.summaries(mode), results.phases(mode)
    is_limit = found.index.isin(limits(case_of(results)))
    bars = found[["median", "min", "max"]].assign(
        is_ours=found.index.str.startswith(OURS), is_limit=is_limit
    )
    return {
        "mode": mode,
        "bars": bars.to_dict("index"),
        "phases": {name: row.dropna().to_dict() for name, row in phases.iterrows()},
    }


def line(cells: Sequence[str]) -> str:
    """Return a line of a table.

    >>> line(["", "a", "b"])
    '| | a | b |'
    """
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def missing(results: Results) -> list[str]:
    return [
        f"- Not measured: {results.case}: {label}: {why}" for label, why in results.missing.items()
    ]


def wrapped(text: str) -> str:
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
