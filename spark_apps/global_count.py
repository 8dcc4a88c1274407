"""The smallest topology: count words, after Storm's transactional global count.

>>> from reliability.core.spout import NoItems
>>> items = topology.spout.plan(None, NoItems())
>>> [topology.spout.count(batch).count for batch in topology.spout.cut(items)]
[9, 7, 3]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability import Count, MemorySpout, State, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_words(batch: DataFrame) -> dict[str, DataFrame]:
    """Every word counts."""
    return {"global_count": batch}


topology = Topology(
    "global_count",
    spout=MemorySpout(
        schema={"word": "string"},
        partitions=[
            ["cat", "dog", "chicken", "cat", "dog", "apple"],
            ["cat", "dog", "apple", "banana"],
            ["cat", "cat", "cat", "cat", "cat", "dog", "dog", "dog", "dog"],
        ],
        take=3,
    ),
    process=count_words,
    states=[State("global_count", values={"words": Count()})],  # no key: a table of one row
    max_spout_pending=3,
)
