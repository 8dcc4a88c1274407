"""What Spark computes alike in every evaluation of the same rows; all else is evaluated once (V5).

Spark's own `deterministic` asks whether a call may differ for one row. It is true for first() and
for the sum of doubles, whose results differ with the order of rows. That order differs from one
evaluation to the next: with the join that Spark chooses, with the columns that a state reads, and
with the time at which parts of a shuffle arrive.

What is not listed here as repeatable counts as not repeatable, so functions of a later Spark and of
users do. `tests/integration/test_repeatable.py` finds those that nobody has classified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reliability.spark.frames.jvm import Expression, Plan

#: Operators of plans whose rows do not depend on the order of their input's. Not among them are
#: those that choose rows by place (limits, samples, dropDuplicates), order equal ones (windows,
#: ASOF joins), number them (pandas on Spark), or call a function on many (mapInPandas and the like)
OPERATORS = frozenset(
    {
        "Aggregate",
        "BinBy",
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "DeserializeToObject",
        "Distinct",
        "EventTimeWatermark",
        "Except",
        "Expand",
        "Filter",
        "Generate",
        "Intersect",
        "Join",
        "LateralJoin",
        "PipeOperator",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SQLFunctionNode",
        "SerializeFromObject",
        "Sort",
        "SubqueryAlias",
        "Union",
        "UnionLoop",
        "UnionLoopRef",
        "UpdateEventTimeWatermarkColumn",
        "View",
        "WithCTE",
    }
)
#: Aggregate functions that give the same for any values
OF_ANY = frozenset(
    {
        "BitAndAgg",
        "BitOrAgg",
        "BitXorAgg",
        "BitmapAndAgg",
        "BitmapConstructAgg",
        "BitmapOrAgg",
        "BloomFilterAggregate",
        "BoolAnd",
        "BoolOr",
        "Count",
        "CountIf",
        "CountMinSketchAgg",
        "HyperLogLogPlusPlus",
        "PivotFirst",  # of the one row that pivot() has made for a value
        "RegrCount",
    }
)
#: Aggregate functions that give the same for values of which equal ones are identical, and whose
#: arithmetic is exact: numbers without a floating point, texts without a collation. Why all others
#: differ stands in tests/integration/test_repeatable.py
OF_EXACT = frozenset({"Average", "Max", "Min", "Sum"})
#: Functions of a row that draw random numbers, which Spark calls deterministic
RANDOM = {
    "AesEncrypt": "aes_encrypt",
    "KllSketchMergeBigint": "kll_sketch_merge_bigint",
    "KllSketchMergeDouble": "kll_sketch_merge_double",
    "KllSketchMergeFloat": "kll_sketch_merge_float",
}
_ADD = frozenset({"Average", "Sum"})
_KEEP_ONE = frozenset({"Distinct", "Except", "Intersect"})
_NOT_EXACT = re.compile("FLOAT|DOUBLE|COLLATE")  # -0.0 equals 0.0, and "a" may equal "A"
_MAY_BE_RANDOM = re.compile("|".join([*RANDOM.values(), r"\.\.\. \d+ more fields"]))


def is_repeatable(plan: Plan) -> bool:
    """Say whether a plan's topmost operator makes the same rows of the same input each time."""
    name = plan.name
    own = plan.expressions if name == "Aggregate" else []
    functions = (function for each in own for function in _aggregates(each))
    return (
        name in OPERATORS
        and plan.deterministic
        and not _draws(plan)
        and not _calls_table_function(plan, name)
        and not _keeps_one_of_equals(plan, name)
        and all(map(_is_repeatable_aggregate, functions))
    )


def _draws(plan: Plan) -> bool:
    """Say whether it calls a function of RANDOM; its text, which may be cut, tells if not."""
    if not _MAY_BE_RANDOM.search(plan.text):
        return False
    return any(each.class_name in RANDOM for own in plan.expressions for each in own.nodes())


def _calls_table_function(plan: Plan, name: str) -> bool:
    """Say whether it calls a Python function that sees one row after the other, and may count."""
    return name == "Generate" and any(each.class_name == "PythonUDTF" for each in plan.expressions)


def _keeps_one_of_equals(plan: Plan, name: str) -> bool:
    """Say whether it keeps one of several texts that a collation calls equal."""
    if name == "Aggregate":
        compared = "".join(each.type for each in plan.grouping)
    else:
        compared = plan.types if name in _KEEP_ONE else ""
    return "COLLATE" in compared


def _aggregates(expression: Expression) -> Iterator[Expression]:
    """Return the aggregate functions of an expression; none is inside another."""
    if expression.class_name == "AggregateExpression":
        yield expression.aggregate_function
    else:
        for part in expression.children:
            yield from _aggregates(part)


def _is_repeatable_aggregate(function: Expression) -> bool:
    name = function.class_name
    if name not in OF_EXACT:
        return name in OF_ANY
    # the type of the values, or the one in which they are added
    if _NOT_EXACT.search(function.type):
        return False
    # if too great a sum is NULL, that depends on what was added first
    return name not in _ADD or function.eval_mode == "ANSI"
