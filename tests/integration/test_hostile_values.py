"""Texts that somebody may choose to do harm: in rows, in names of files, in reasons.

What a user's data holds is bound or copied, never a part of a statement, so it comes back as it
was; what Postgres cannot hold is refused with an error of the project, and nothing of it counts.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from reliability import Append, Count, Csv, FileSpout, Max, State, Topology
from reliability.core.errors import ReliabilityError, SourceUnreadable, TextNotStorable
from reliability.spouts.patterns import is_hidden
from reliability.states import attempt_table
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import verify
from reliability.transaction.topology.lifecycle import pause
from tests.replay.shop import Shop
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows
from tests.support.texts import TEXTS

EXAMPLES = int(os.environ.get("RELIABILITY_VALUES", "12"))
SNIPPETS = [
    *("'; DROP TABLE public.counted; --", "$$", "$1", "%s", "%(topology)s", "%%", "{}", "{0!r}"),
    *("\\.\n", "\\x00", "\\\\N", "{NULL}", '{"a"}', "(,)", "E'\\''", "1\t2", "\x01", "\x7f\x1b[2J"),
    *("\u2028", "\u202e", "\ufeff", "e\u0301", "é", "ß", "ẞ", "I", "ı", "x" * 2000),
]
texts = st.sampled_from([*TEXTS, *SNIPPETS]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30
)
row = st.fixed_dictionaries({"k": st.none() | texts, "word": st.none() | texts})
# what the code makes of each record, and what it makes when it was corrected
batches = st.lists(st.tuples(row, row), min_size=1, max_size=5)
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # what has committed does not shrink
)


def counted(elsewhere: str = "") -> list[State]:
    key = {"k": "text", "word": "text"}
    return [
        State("counted", key=key, values={"n": Count()}),
        State("longest", key={"k": "text"}, values={"word": Max("word", "text")}),
        State("log", key={"k": "text"}, values={"word": Append("word", "text")}),
        State("listed", key={"k": "text"}, values={"word": Append("word", "text")}, as_view=True),
    ]


@pytest.fixture
def shop(connection) -> Shop:
    return Shop(connection, kinds=counted)


def contents(shop: Shop, table: str) -> Counter[Any]:
    columns = {"counted": "k, word, n"}.get(table, "k, word")
    return Counter(shop.ask(f"SELECT {columns} FROM {table}"))


def expected(committed: list[list[dict[str, Any]]]) -> dict[str, Counter[Any]]:
    pairs = Counter((row["k"], row["word"]) for batch in committed for row in batch)
    longest = {
        k: max(
            (word for key, word in pairs if key == k and word is not None),
            key=str.encode,
            default=None,
        )
        for k, _ in pairs
    }
    return {
        "counted": Counter((*pair, times) for pair, times in pairs.items()),
        "longest": Counter(longest.items()),
        "log": pairs,
        "listed": pairs,
    }


def test_rows_of_any_texts_count_as_they_are_and_are_replaced_as_they_were(shop):
    committed: list[list[dict[str, Any]]] = []

    @SETTINGS
    @given(batches)
    def commit(batch):
        first, corrected = ([*rows] for rows in zip(*batch, strict=True))
        shop.commit(first)
        check([*committed, first])
        committed.append(corrected)
        shop.correct(len(committed), corrected)
        check(committed)
        of_row = explain(shop.connection, "shop", "counted", corrected[0])
        assert len(committed) in {one.attempt.txid for one in of_row.contributions if one.attempt}

    def check(committed):
        for table, found in expected(committed).items():
            assert contents(shop, table) == found

    commit()
    assert all(found.is_exact for found in verify(shop.connection, "shop"))


#: of 8,000 characters that cannot be compressed: a key of an index has less
LONG = Random(0).randbytes(4000).hex()


BAD = [
    ({"k": "a\0b", "word": "a"}, "TEXT_NOT_STORABLE"),
    ({"k": "a", "word": "\0"}, "TEXT_NOT_STORABLE"),
    ({"k": LONG, "word": "a"}, "UNEXPECTED_ANSWER"),
]


@pytest.mark.parametrize("min_rows", [1, 1000], ids=["tables of its own", "one table"])
def test_of_a_batch_with_a_text_that_postgres_cannot_hold_nothing_counts(
    shop, monkeypatch, min_rows
):
    monkeypatch.setattr(attempt_table, "MIN_ROWS", min_rows)
    good = [{"k": "a", "word": "b"}] * 6
    shop.commit(good)
    for commits, (bad, code) in enumerate(BAD, start=1):
        [txid] = shop.deliver([*good[:5], bad])
        before = shop.tables()
        with pytest.raises(ReliabilityError) as raised:
            shop.transact(txid)
        assert raised.value.code == code, raised.value
        assert shop.tables() == before
        shop.makes[txid] = good  # the code is corrected, and it goes on
        shop.clear(txid)
        shop.transact(txid)
        assert contents(shop, "counted") == {("a", "b", 6 + 6 * commits): 1}


# --- names of files ------------------------------------------------------------------------------


names = (st.sampled_from([*TEXTS, *SNIPPETS[:-1]]) | st.text(max_size=30)).map(
    lambda text: text.replace("/", "_")
)


def test_a_file_of_any_name_is_emitted_once(connection, tmp_path):
    """Or it is refused, and nothing is emitted."""
    number = iter(range(1000))

    @SETTINGS
    @given(st.lists(names, min_size=1, max_size=3))
    @example([*TEXTS, *SNIPPETS[:-1]])
    def emit(names):
        name = f"files{next(number)}"
        folder = tmp_path / name
        folder.mkdir()
        for each in names:
            with suppress(OSError, ValueError):  # no file can have this name
                Path(folder, f"{each}.csv").write_text("1\n")
        own = FileSpout(f"{folder}/*.csv", 1000, format=Csv(), schema="n int", allow_empty=True)
        states = [State(name, values={"n": Count()})]
        topology = Topology(name, spout=own, process=lambda batch: {name: batch}, states=states)
        pipeline = pipeline_of(topology, connection)
        shown = sorted(each for each in os.listdir(folder) if not is_hidden(each))
        stored = (
            "SELECT item->>'path' FROM reliability.transaction,"
            " jsonb_array_elements(batch_meta) AS item WHERE topology = %(t)s"
        )
        try:
            txids = pipeline.emit(None)
        except SourceUnreadable:  # Spark takes a colon for the end of a scheme
            assert any(":" in each for each in shown)
            assert rows(connection, stored, t=name) == []
            return
        assert sorted(path for (path,) in rows(connection, stored, t=name)) == [
            f"{folder}/{each}" for each in shown
        ]
        assert txids == ([1] if shown else [])
        assert pipeline.again("another").emit(None) == []

    emit()


# --- reasons -------------------------------------------------------------------------------------


def test_a_reason_of_any_text_is_kept(shop):
    """Also one that Postgres cannot hold: who writes it is in the middle of something else."""
    shop.commit([{"k": "a", "word": "a"}])

    @SETTINGS
    @given(texts | st.text(st.characters(), max_size=30))
    @example("a\0b\ud800")
    def stop(reason):
        pause(shop.connection, "shop", reason)
        kept = shop.ask("SELECT paused_reason FROM reliability.topology")
        escaped = reason.replace("\0", "\\0").encode(errors="backslashreplace").decode()
        assert kept == [(escaped,)]

    stop()


def test_texts_that_name_something_and_cannot_be_stored_are_refused(connection):
    for name in ("a\0", "\ud800"):
        with pytest.raises(TextNotStorable):
            pause(connection, name, "")
