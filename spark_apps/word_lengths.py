"""Two steps on an opaque spout: count words, then count what that step staged by word length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability import Count, MemorySpout, State, Step, Sum, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_words(batch: DataFrame) -> dict[str, DataFrame]:
    """Feed every word to the state `words`."""
    return {"words": batch}


def by_length(words: DataFrame) -> dict[str, DataFrame]:
    """Read what `count_words` staged in this attempt: the words of the batch, with counts."""
    return {"word_lengths": words.selectExpr("length(word) AS length", "times")}


def tell(topology: str, txid: int) -> None:
    """Print a line after the commit, outside the transaction; an error here fails nothing."""
    print(f"{topology} has committed txid {txid}")


topology = Topology(
    "word_lengths",
    spout=MemorySpout(
        schema={"word": "string"},
        partitions=[["man", "man", "dog", "apple", "apple", "cat", "banana", "man"]],
        take=4,
        opaque=True,
    ),
    states=[
        State("words", key={"word": "text"}, values={"times": Count()}),
        State("word_lengths", key={"length": "bigint"}, values={"times": Sum("times")}),
    ],
    steps=[
        Step("count", count_words, feeds=["words"]),
        Step("by_length", by_length, feeds=["word_lengths"], reads=["words"]),
    ],
    max_spout_pending=2,
)
