"""Play files of vectors: pick the adapter by the file's component, play each vector, tell.

An adapter is thin: it maps ops to calls of the product and states which fields it compares. What
it does not know, an op, a section, a component, is a FAIL.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.bench import Bench
from tests.conformance.comparison import Comparison, Failed, Outcome, Rule, Verdict
from tests.conformance.vectors import Vector, VectorFile, load

Play = Callable[[Vector, Comparison, Bench], None]


@dataclass(frozen=True)
class Adapter:
    """How the vectors of one component are played.

    :param component: what the file's component has to match, whatever the case of its letters
    :param each: the sections of many vectors
    :param whole: the sections that are one vector
    :param rules: the differences that are meant
    """

    component: str
    each: Mapping[str, Play]
    whole: Mapping[str, Play] = field(default_factory=dict)
    rules: Sequence[Rule] = ()

    def is_for(self, component: str) -> bool:
        return re.search(self.component, component, re.IGNORECASE) is not None


def run_file(path: Path, adapters: Sequence[Adapter], bench: Bench) -> Iterator[Outcome]:
    """Play all vectors of a file."""
    try:
        file = load(path)
    except (OSError, ValueError) as error:
        yield Outcome(path.name, "the file", Verdict.FAIL, (f"it cannot be read: {error}",))
        return
    adapter = next((one for one in adapters if one.is_for(file.component)), None)
    if adapter is None:
        why = f"nothing is known of the component {file.component!r}"
        yield Outcome(file.name, "the file", Verdict.FAIL, (why,))
        return
    plays = list(_plays(file, adapter))
    if not plays:
        yield Outcome(file.name, "the file", Verdict.FAIL, ("it holds no vectors",))
    for vector, play in plays:
        if play is None:
            why = "nothing is known of such a section"
            yield Outcome(file.name, vector.section, Verdict.FAIL, (why,))
        else:
            yield _run(file, vector, play, adapter, bench)


def _plays(file: VectorFile, adapter: Adapter) -> Iterator[tuple[Vector, Play | None]]:
    for section, value in file.sections():
        if section in adapter.each and isinstance(value, list):
            yield from ((vector, adapter.each[section]) for vector in file.each(section))
        elif section in adapter.whole:
            yield file.whole(section), adapter.whole[section]
        elif _holds_vectors(value):
            yield file.whole(section), None


def _holds_vectors(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_vectors, value))
    if isinstance(value, dict):
        return bool(_TELLTALE & value.keys()) or any(map(_holds_vectors, value.values()))
    return False


_TELLTALE = {"op", "ops", "steps", "commits", "expect"}


def _run(file: VectorFile, vector: Vector, play: Play, adapter: Adapter, bench: Bench) -> Outcome:
    comparison = Comparison(adapter.rules, quirk=vector.quirk)
    try:
        play(vector, comparison, bench)
    except Failed as failed:
        return Outcome(file.name, vector.name, Verdict.FAIL, (str(failed),))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{comparison.where}: {type(error).__name__}: {error} ({where.name}, {where.lineno})"
        return Outcome(file.name, vector.name, Verdict.FAIL, (why,))
    finally:
        bench.clear()
    return comparison.outcome(file.name, vector.name)


def lines(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Return what a person reads: a line for each vector, its reasons below, and the sums."""
    count: Counter[Verdict] = Counter()
    file = None
    for outcome in outcomes:
        if outcome.file != file:
            file = outcome.file
            yield file
        count[outcome.verdict] += 1
        yield f"  {outcome.verdict.value:<19} {outcome.vector}"
        yield from (f"      {why}" for why in outcome.why)
    yield summary(count)


def summary(count: Mapping[Verdict, int]) -> str:
    """Return how many vectors passed, failed and were excused, and the share of the latter."""
    total = sum(count.values())
    excused = count.get(Verdict.DIFFERS, 0)
    share = 100 * excused / total if total else 0
    return (
        f"{total} vectors: {count.get(Verdict.PASS, 0)} pass, {excused} differ on purpose "
        f"({share:.0f} %), {count.get(Verdict.FAIL, 0)} FAIL"
    )
