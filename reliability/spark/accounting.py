"""The accounting of frames: a step's input hides `_x` and `_n`, and Spark carries them along (V3).

What is hidden is reached from the result of every operation that Spark resolves by name: select,
where, withColumn, joins, windows, unions, explode, sort and the like. So a process function is
ordinary PySpark, and a row that it loses or doubles shows all the same. What makes new rows loses
it: groupBy, SQL on a view, functions that get whole partitions. For those there are `aggregate()`
and `show_accounting()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reliability.core.errors import FrameWithoutAccounting
from reliability.core.fold import ACCOUNTING
from reliability.spark import catalyst
from reliability.spark.frames import FOLD_N, FOLD_X

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# what makes new rows, by the name of its node in Spark's plan
_OPERATIONS = {
    "Aggregate": "groupBy() or distinct()",
    "Except": "subtract() or exceptAll()",
    "Expand": "rollup(), cube() or unpivot()",
    "Intersect": "intersect()",
    "Join": "the other side of a semi or anti join",
    "Project": "a join by a column's name",
    "Select": "select() or SQL without `_x` and `_n`",
    "SubqueryAlias": "SQL on a view",
    "Union": "a union with a frame that is not made from the step's input",
    "View": "SQL on a view",
}
_STOP_IT = ("SubqueryAlias", "Union")
_HELPERS = {"Aggregate": "aggregate()"}
_ONE_SIDE = (
    "both frames of a join are made from the batch, and only the left one's rows count: put the "
    "frame on the left that has all rows, and write aggregate() of a union in place of a full join"
)
_FILLED = (
    "a union has filled `_x` and `_n` of a part with NULL, because only another part shows them: "
    "call show_accounting() on all parts of it, or on none"
)


def hide_accounting(frame: DataFrame) -> DataFrame:
    """Return a frame without the columns `_x` and `_n`, from whose results they can be reached.

    What it hides already, such as a file's `_metadata`, stays so.
    """
    spark = frame.sparkSession
    plan, already = _with_hidden(frame)
    hidden = [*_shown(plan), *already]
    project = catalyst.project(plan, hidden, spark)
    catalyst.set_hidden(project, hidden, spark)
    return catalyst.frame_of(project, spark)


def _with_hidden(frame: DataFrame) -> tuple[Any, list[Any]]:
    """Return a plan that shows what a frame hides beside the accounting, and what that is."""
    from pyspark.errors import AnalysisException

    spark, plan = frame.sparkSession, catalyst.analyzed(frame)
    found = catalyst.sequence(plan.metadataOutput())
    already = [attribute for attribute in found if attribute.name() not in ACCOUNTING]
    try:
        shown = frame.select("*", *(catalyst.column_of(a, spark) for a in already))
    except AnalysisException:  # a function that gets whole partitions made new rows
        return plan, []
    return catalyst.analyzed(shown) if already else plan, already


def show_accounting(frame: DataFrame) -> DataFrame:
    """Return the frame with the columns `_x` and `_n`; it may have them already.

    Call it before an operation that makes new rows, and keep the columns there::

        rows = show_accounting(batch)
        rows.mapInPandas(scored, schema="customer_id bigint, score double, _x bigint, _n bigint")

    :raises FrameWithoutAccounting: an operation has lost them
    """
    return with_accounting("the frame", frame)


def with_accounting(name: str, frame: DataFrame) -> DataFrame:
    """Do what `show_accounting` does.

    :param name: what an error calls the frame
    :raises FrameWithoutAccounting: an operation has lost them, or one of them
    """
    _check_case(name, frame)
    shown = [column for column in ACCOUNTING if column in frame.columns]
    if len(shown) == len(ACCOUNTING):
        return frame
    if shown:
        missing = [column for column in ACCOUNTING if column not in shown]
        raise FrameWithoutAccounting(f"{name} has the column {shown[0]}, but not {missing[0]}")
    spark, plan = frame.sparkSession, catalyst.analyzed(frame)
    return _show(name, _carried(plan, spark) or plan, spark)


def _check_case(name: str, frame: DataFrame) -> None:
    """Refuse columns that Spark does not tell from the accounting's, of a joined table maybe."""
    called = [column for column in frame.columns if column.lower() in ACCOUNTING]
    if wrong := [one for one in called if one not in ACCOUNTING or called.count(one) > 1]:
        raise FrameWithoutAccounting(
            f"{name} has the columns {wrong}, and Spark does not tell them from `_x` and `_n`, "
            "which account for its rows",
            remedy="rename or drop the columns of what is joined, before the join.",
        )


def likely_mistakes(frame: DataFrame) -> list[str]:
    """Return what in a frame's plan may have lost rows or doubled them, and what to write."""
    nodes = [*catalyst.nodes(catalyst.analyzed(frame))]
    joins = (node for node in nodes if node.nodeName() == "Join")
    parts = [
        catalyst.frame_of(part, frame.sparkSession)
        for node in nodes
        if node.nodeName() == "Union"
        for part in catalyst.children(node)
    ]
    found = [(any(map(_parts_have_it, joins)), _ONE_SIDE), (any(map(_is_filled, parts)), _FILLED)]
    return [told for is_there, told in found if is_there]


def _is_filled(part: DataFrame) -> bool:
    return "_n" in part.columns and catalyst.always(part, "_n", "null")


def _show(name: str, plan: Any, spark: SparkSession) -> DataFrame:
    from pyspark.errors import AnalysisException

    found = _hidden(plan)
    if len(found) < len(ACCOUNTING):
        raise _lost(name, plan)
    columns = [catalyst.column_of(found[column], spark).alias(column) for column in ACCOUNTING]
    try:
        return catalyst.frame_of(plan, spark).select("*", *columns)
    except AnalysisException as error:  # a function that gets whole partitions made new rows
        raise _lost(name, plan) from error


def aggregate(frame: DataFrame, by: list[str], **values: Column) -> DataFrame:
    """Group a frame within a process function; each group accounts for its rows (V3).

    ::

        per_order = aggregate(lines, ["order_id"], total=F.sum("price"))

    :param by: the columns of the key; without any, all rows are one group, and no rows are none
    """
    from pyspark.sql import functions as F

    grouped = with_accounting("the frame for aggregate()", frame).groupBy(*by)
    made = grouped.agg(
        *[value.alias(name) for name, value in values.items()],
        F.expr(FOLD_X).alias("_x"),
        F.expr(FOLD_N).alias("_n"),
    )
    # without a key, Spark makes one row even of an empty frame
    return hide_accounting(made if by else made.where("_n IS NOT NULL"))


def _hidden(plan: Any) -> dict[str, Any]:
    """Return the hidden columns of a plan: of a join, those of its left side, if it has some."""
    output = plan.metadataOutput()
    found: dict[str, Any] = {}
    for place, (name, _) in enumerate(catalyst.names_and_ids(output)):
        if name in ACCOUNTING:
            found.setdefault(name, output.apply(place))
    return found


def _shown(plan: Any) -> list[Any]:
    """Return the columns of the accounting that a plan shows."""
    output = plan.output()
    names = enumerate(catalyst.names_and_ids(output))
    return [output.apply(place) for place, (name, _) in names if name in ACCOUNTING]


def _has_accounting(plan: Any) -> bool:
    return any(
        {name for name, _ in catalyst.names_and_ids(output)}.issuperset(ACCOUNTING)
        for output in (plan.output(), plan.metadataOutput())
    )


def _carried(plan: Any, spark: SparkSession) -> Any | None:
    """Return a plan in which what is hidden goes on where Spark stops it; None if it is the same.

    That is above a union, above what hides columns of its own, and above alias() before Spark 4.2.
    """
    below = [(child, _carried(child, spark)) for child in catalyst.children(plan)]
    is_changed = any(new is not None for _, new in below)
    if is_changed:
        plan = catalyst.with_children(plan, [new or old for old, new in below], spark)
    name = plan.nodeName()
    if name == "Project":
        _hide_below(plan, spark)
    if name in _STOP_IT and not _has_accounting(plan) and _parts_have_it(plan):
        return _carried_over(plan, spark)
    return plan if is_changed else None


def _carried_over(plan: Any, spark: SparkSession) -> Any:
    """Return a plan that hides the accounting of its parts; its columns keep their ids."""
    parts = catalyst.children(plan)
    shown = [catalyst.analyzed(_show("a part of it", part, spark)) for part in parts]
    return catalyst.analyzed(
        hide_accounting(catalyst.frame_of(catalyst.with_children(plan, shown, spark), spark))
    )


def _hide_below(plan: Any, spark: SparkSession) -> None:
    """Let a Project that hides columns hide the accounting of what is below it.

    A join by a column's name hides its second key, and nothing else that was hidden below. Of a
    self join, Spark gives the columns of the right side new ids, but not where they are hidden.
    """
    if (hidden := catalyst.hidden(plan, spark)) is None:
        return
    (child,) = catalyst.children(plan)
    below = _hidden(child)
    below |= {attribute.name(): attribute for attribute in _shown(child)}
    others = [attribute for attribute in hidden if attribute.name() not in ACCOUNTING]
    catalyst.set_hidden(plan, [*others, *below.values()], spark)


def _lost(name: str, plan: Any) -> FrameWithoutAccounting:
    """Name the operation that has lost the accounting."""
    culprit = _culprit(plan)
    if culprit is None:
        return FrameWithoutAccounting(
            f"{name} is not made from the step's input",
            remedy="return frames that are made from the process function's arguments.",
        )
    operation = _OPERATIONS.get(culprit, culprit)
    if helper := _HELPERS.get(culprit):
        how = f"use reliability.{helper} instead"
    else:
        how = "call reliability.show_accounting() on the frame before it, and keep `_x` and `_n`"
    return FrameWithoutAccounting(
        f"{name} no longer says which rows of the batch it has: {operation} has lost that",
        remedy=f"{how}.",
    )


def _parts_have_it(plan: Any) -> bool:
    return all(map(_has_accounting, catalyst.children(plan)))


def _culprit(plan: Any) -> str | None:
    """Return the name of the topmost node that lost what a plan below it has."""
    name, below = str(plan.nodeName()), catalyst.children(plan)
    is_new = name != "Project" and _makes_rows(plan, below)
    if any(map(_has_accounting, below)) and (is_new or not _has_accounting(plan)):
        is_select = name == "Project" and below[0].nodeName() != "Join"
        return "Select" if is_select else name
    return next(filter(None, map(_culprit, below)), None)


def _makes_rows(plan: Any, below: Sequence[Any]) -> bool:
    ids = {i for child in below for _, i in catalyst.names_and_ids(child.output())}
    return ids.isdisjoint(i for _, i in catalyst.names_and_ids(plan.output()))
