"""A spout whose rows the test stages itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.spout import BatchMeta, Spout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class WithoutSpark(Spout):
    """A base class of such spouts."""

    def frame(self, spark: SparkSession, meta: BatchMeta) -> DataFrame:
        raise AssertionError("the test stages the rows of this spout itself")
