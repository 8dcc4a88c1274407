"""Show that this Spark does what the accounting relies on, before a row relies on it (V3, V5, V8).

There is no API for it (`jvm`), so another release of Spark may do something else, without an error.
Each check makes plans that must have a property, or must not have it. No job runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reliability.core.errors import SparkNotSupported
from reliability.core.fold import ACCOUNTING, OWN
from reliability.spark.frames.accounting import hide_accounting, show_accounting
from reliability.spark.frames.carried import Asked
from reliability.spark.frames.jvm import Plan, is_gone
from reliability.spark.frames.repeatable import is_repeatable
from reliability.spark.frames.set_aside_rows import marks_of
from reliability.spark.session import PINNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLDEST, BEFORE = (4, 0), (5, 0)
_MARK = f"{OWN}mark"
_NOT_BY_DEFAULT = "spark.sql.csv.parser.columnPruning.enabled"  # Spark's default is another value


def check_release(version: str) -> None:
    """Raise SparkNotSupported of a release with which not even a session can be prepared.

    Spark 3.5 has no `classic` sessions, no tags of a session's jobs, and another Scala.
    """
    release = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST <= release < BEFORE:
        raise SparkNotSupported(f"this is Spark {version}")


def check_spark(spark: SparkSession) -> None:
    """Raise SparkNotSupported unless plans and sessions are what this package takes them for.

    :param spark: its settings, and those of its application's new sessions, are pinned
    """
    try:
        unmet = [what for what, is_met in _checks(spark) if not is_met]
    except Exception as error:  # such as a class or a method that the JVM does not have
        if is_gone(error):
            raise
        unmet = [f"{type(error).__name__}: {error}"[:300]]
    if unmet:
        raise SparkNotSupported(f"Spark {spark.version} differs from what is relied on: {unmet[0]}")


def _checks(spark: SparkSession) -> Iterator[tuple[str, bool]]:
    """Yield what this package relies on, and whether it is so.

    Only what would count wrongly without an error is looked at: each plan takes milliseconds.
    """
    rows = spark.range(3).selectExpr("id", "id AS _x", "1L AS _n")
    source = Plan.of(rows).ids(*ACCOUNTING)
    batch, other = hide_accounting(rows), spark.range(3)
    made = batch.selectExpr("id + 1 AS id").where("id > 0").join(other, "id", "left")
    yield "columns can be hidden", batch.columns == made.columns == ["id"]
    yield "what is hidden is carried along", _origin(made) == source
    yield "new rows hide nothing", not _hidden(batch.groupBy("id").count())

    marked = rows.withColumn(_MARK, rows.id > 0)
    staying = marked.where(_MARK).drop(_MARK)
    yield "a plan keeps its marks", marks_of(other.join(staying, "id"), [_MARK]) == {_MARK}

    one, two = (batch.selectExpr("id", "rand() AS r") for _ in range(2))
    yield "copies are equal", len({_counted(batch).identity for _ in range(2)}) == 1
    yield "two draws differ", Plan.of(one).identity != Plan.of(two).identity
    yield "a random number does not repeat", not _repeats(one)
    yield "a first value does not repeat", not _repeats(batch.groupBy("id").agg({"id": "first"}))
    clock = Plan.of(batch.selectExpr("now()"))
    yield "a clock is seen", clock.has_clock and clock.reads_clock and not Plan.of(batch).has_clock
    names = {column.name for column in Asked.by([made]).carried(Plan.of(made)).output}
    yield "a plan can be changed", names >= {*ACCOUNTING}
    of_new = spark.newSession().conf.get(_NOT_BY_DEFAULT)
    yield "a new session has the application's settings", of_new == PINNED[_NOT_BY_DEFAULT]


def _hidden(frame: DataFrame) -> list[int]:
    return [column.id for column in Plan.of(frame).reachable if column.name in ACCOUNTING]


def _origin(frame: DataFrame) -> set[int]:
    """Return the ids of what the frame shows as `_x` and `_n`."""
    plan = Plan.of(show_accounting(frame))
    makers = plan.makers_of(plan.ids(*ACCOUNTING))
    return set[int]().union(*(made.references for made in makers))


def _counted(frame: DataFrame) -> Plan:
    return Plan.of(frame.groupBy("id").count())


def _repeats(frame: DataFrame) -> bool:
    return all(is_repeatable(node) for node in Plan.of(frame).nodes() if not node.is_leaf)
