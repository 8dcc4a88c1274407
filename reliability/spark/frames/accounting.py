"""The accounting of frames: a step's input hides `_x` and `_n`, and Spark carries them along (V3).

What is hidden is reached from the result of every operation that Spark resolves by name: select,
where, withColumn, joins, windows, unions, explode, sort and the like. So a process function is
ordinary PySpark, and a row that it loses or doubles shows all the same. What makes new rows loses
it: groupBy, SQL on a view, functions that get whole partitions. For those there are `aggregate()`
and `show_accounting()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reliability.core.errors import FrameWithoutAccounting
from reliability.core.fold import ACCOUNTING
from reliability.deployment.lazy import F
from reliability.spark.frames.accounting_columns import FOLD_N, FOLD_X
from reliability.spark.frames.columns import selected
from reliability.spark.frames.jvm import Attribute, Plan, always

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
_COGROUPS = ("FlatMapCoGroupsInArrow", "FlatMapCoGroupsInPandas")
#: What leaves rows out of a frame by no condition of theirs, and how it is called.
_LEAVES_OUT = {
    "Deduplicate": "dropDuplicates()",
    "GlobalLimit": "limit()",
    "Offset": "offset()",
    "Sample": "sample()",
    "Except": "subtract()",
    "Intersect": "intersect()",
}
_LEFT_OUT = (
    "{} leaves rows out: number them with row_number() over a window, and call reliability.drop() "
    "of those that are not wanted"
)
_ONE_SIDE = (
    "both frames of a join are made from the batch, and only the left one's rows count: put the "
    "frame on the left that has all rows, and write aggregate() of a union in place of a full join"
)
_COGROUP = (
    "both sides of a cogroup show `_x` and `_n`, so what was set aside on either side counts: call "
    "show_accounting() only on the frames whose rows the function returns"
)
_FILLED = (
    "a union has filled `_x` and `_n` of a part with NULL, because only another part shows them: "
    "call show_accounting() on all parts of it, or on none"
)


def hide_accounting(frame: DataFrame) -> DataFrame:
    """Return a frame without the columns `_x` and `_n`, from whose results they can be reached.

    What it hides already, such as a file's `_metadata`, stays so.
    """
    plan, already = _with_hidden(frame)
    return plan.hiding([*_shown(plan), *already])


def _with_hidden(frame: DataFrame) -> tuple[Plan, list[Attribute]]:
    """Return a plan that shows what a frame hides beside the accounting, and what that is."""
    plan = Plan.of(frame)
    already = [attribute for attribute in plan.reachable if attribute.name not in ACCOUNTING]
    if not already:
        return plan, []
    shown = selected(frame, "*", *(a.column(plan.spark) for a in already))
    if shown is None:  # a function that gets whole partitions made new rows
        return plan, []
    return Plan.of(shown), already


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
    return _show(name, hidden_above_unions(Plan.of(frame)))


def _check_case(name: str, frame: DataFrame) -> None:
    """Refuse columns that Spark does not tell from the accounting's, of a joined table maybe."""
    alike = [column for column in frame.columns if column.lower() in ACCOUNTING]
    if wrong := [name for name in alike if name not in ACCOUNTING or alike.count(name) > 1]:
        raise FrameWithoutAccounting(
            f"{name} has the columns {wrong}, and Spark does not tell them from `_x` and `_n`, "
            "which account for its rows",
            remedy="rename or drop the columns of what is joined, before the join.",
        )


def likely_mistakes(frame: DataFrame) -> list[str]:
    """Return what in a frame's plan may have lost rows or doubled them, and what to write."""
    nodes = [*Plan.of(frame).nodes()]
    joins = (node for node in nodes if node.name == "Join")
    cogroups = (node for node in nodes if node.name in _COGROUPS)
    parts = [p.frame() for node in nodes if node.name == "Union" for p in node.children]
    mistakes = {
        _ONE_SIDE: any(map(_parts_have_it, joins)),
        _COGROUP: any(all(len(_shown(p)) == len(ACCOUNTING) for p in c.children) for c in cogroups),
        _FILLED: any("_n" in part.columns and always(part, "_n", "null") for part in parts),
    }
    leaving = dict.fromkeys(
        _LEAVES_OUT[node.name]
        for node in nodes
        if node.name in _LEAVES_OUT and any(map(_has_accounting, node.children))
    )
    left_out = [_LEFT_OUT.format(" or ".join(leaving))] if leaving else []
    return [mistake for mistake, is_there in mistakes.items() if is_there] + left_out


def _show(name: str, plan: Plan) -> DataFrame:
    hidden = _hidden(plan)
    if len(hidden) < len(ACCOUNTING):
        raise _lost(name, plan)
    columns = [hidden[column].column(plan.spark).alias(column) for column in ACCOUNTING]
    shown = selected(plan.frame(), "*", *columns)
    if shown is None:  # a function that gets whole partitions made new rows
        raise _lost(name, plan)
    return shown


def aggregate(frame: DataFrame, by: list[str], **values: Column) -> DataFrame:
    """Group a frame within a process function; each group accounts for its rows (V3).

    ::

        per_order = aggregate(lines, ["order_id"], total=F.sum("price"))

    :param by: the columns of the key; without any, all rows are one group, and no rows are none
    """
    shown = with_accounting("the frame for aggregate()", frame)
    columns = [value.alias(name) for name, value in values.items()]
    fold = [F.expr(FOLD_X).alias("_x"), F.expr(FOLD_N).alias("_n")]
    made = shown.groupBy(*by).agg(*columns, *fold)
    if Plan.of(made).calls_python_aggregates:
        # Spark computes no aggregate of its own beside it: let each row account for its group
        from pyspark.sql import Window

        group = Window.partitionBy(*by)
        folded = {"_x": F.expr(FOLD_X).over(group), "_n": F.expr(FOLD_N).over(group)}
        made = shown.withColumns(folded).groupBy(*by, *ACCOUNTING).agg(*columns)
    # without a key, Spark makes one row even of an empty frame
    return hide_accounting(made if by else made.where("_n IS NOT NULL"))


def _hidden(plan: Plan) -> dict[str, Attribute]:
    """Return the hidden columns of a plan: of a join, those of its left side, if it has some."""
    hidden: dict[str, Attribute] = {}
    for attribute in plan.reachable:
        if attribute.name in ACCOUNTING:
            hidden.setdefault(attribute.name, attribute)
    return hidden


def _shown(plan: Plan) -> list[Attribute]:
    return [attribute for attribute in plan.output if attribute.name in ACCOUNTING]


def _has_accounting(plan: Plan) -> bool:
    return len(_hidden(plan)) == len(ACCOUNTING) or {*ACCOUNTING} <= {a.name for a in _shown(plan)}


def hidden_above_unions(plan: Plan) -> Plan:
    """Return a plan in which what is hidden goes on where Spark stops it.

    That is above a union, above what hides columns of its own, and above alias() before Spark 4.2.
    """
    return _carried(plan) or plan


def _carried(plan: Plan) -> Plan | None:
    below = [(child, _carried(child)) for child in plan.children]
    is_changed = any(new is not None for _, new in below)
    if is_changed:
        plan = plan.over(new or old for old, new in below)
    name = plan.name
    if name == "Project":
        _hide_below(plan)
    if name in _STOP_IT and not _has_accounting(plan) and _parts_have_it(plan):
        # hide what its parts show; its columns keep their ids
        shown = [Plan.of(_show("a part of it", part)) for part in plan.children]
        return Plan.of(hide_accounting(plan.over(shown).frame()))
    return plan if is_changed else None


def _hide_below(plan: Plan) -> None:
    """Let a Project that hides columns hide the accounting of what is below it.

    A join by a column's name hides its second key, and nothing else that was hidden below. Of a
    self join, Spark gives the columns of the right side new ids, but not where they are hidden.
    """
    if (hidden := plan.hidden) is None:
        return
    (child,) = plan.children
    below = _hidden(child)
    below |= {attribute.name: attribute for attribute in _shown(child)}
    others = [attribute for attribute in hidden if attribute.name not in ACCOUNTING]
    plan.hide([*others, *below.values()])


def _lost(name: str, plan: Plan) -> FrameWithoutAccounting:
    """Name the operation that has lost the accounting."""
    culprit = _culprit(plan)
    if culprit is None:
        return FrameWithoutAccounting(
            f"{name} is not made from the step's input",
            remedy="return frames that are made from the process function's arguments.",
        )
    operation = _OPERATIONS.get(culprit, culprit)
    how = "call reliability.show_accounting() on the frame before it, and keep `_x` and `_n`."
    if culprit == "Aggregate":
        how = "use reliability.aggregate() instead."
    return FrameWithoutAccounting(
        f"{name} no longer says which rows of the batch it has: {operation} has lost that",
        remedy=how,
    )


def _parts_have_it(plan: Plan) -> bool:
    return all(map(_has_accounting, plan.children))


def _culprit(plan: Plan) -> str | None:
    """Return the name of the topmost node that lost what a plan below it has."""
    name, below = plan.name, plan.children
    is_new = name != "Project" and all(child.ids().isdisjoint(plan.ids()) for child in below)
    if any(map(_has_accounting, below)) and (is_new or not _has_accounting(plan)):
        is_select = name == "Project" and below[0].name != "Join"
        return "Select" if is_select else name
    return next(filter(None, map(_culprit, below)), None)
