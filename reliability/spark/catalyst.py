"""What this project asks of Spark's analyzed plans, which have no API in Python.

`tests/integration/test_hidden_accounting.py` holds what is relied on here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ALIAS = re.compile(r" AS .*#(\d+)[^#]*\Z", re.DOTALL)
_ATTRIBUTE = re.compile(r"(.*)#(\d+)[^#]*", re.DOTALL)  # amount#12, id#7L


def analyzed(frame: DataFrame) -> Any:
    """Return a frame's analyzed logical plan."""
    return frame._jdf.queryExecution().analyzed()


def always(frame: DataFrame, column: str, literal: str) -> bool:
    """Say whether Spark's optimizer finds that a column has this one value in every row."""
    plan = frame.select(column)._jdf.queryExecution().optimizedPlan()
    return plan.nodeName() == "Project" and bool(
        re.fullmatch(rf"{literal} AS {column}#\d+L?", plan.expressions().mkString())
    )


def frame_of(plan: Any, spark: SparkSession) -> DataFrame:
    """Return the frame of an analyzed plan."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    dataset = jvm(spark).org.apache.spark.sql.classic.Dataset
    return ClassicDataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the frame in this session: what is made of it from now on follows its settings."""
    return frame if frame.sparkSession is spark else frame_of(analyzed(frame), spark)


def column_of(attribute: Any, spark: SparkSession) -> Column:
    """Return an attribute of a plan as a column: it is found by its id, not by its name."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.column(attribute))


def project(plan: Any, hidden: Sequence[Any], spark: SparkSession) -> Any:
    """Return a Project over a plan that shows its columns without these."""
    return select(plan, plan.output().diff(scala(hidden, spark)), spark)


def select(plan: Any, columns: Any, spark: SparkSession) -> Any:
    """Return a Project over a plan with a Scala sequence of columns."""
    return _project(jvm(spark))(columns, plan)


def hide(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return a frame without these columns, from whose results they can be reached."""
    spark, plan = frame.sparkSession, analyzed(frame)
    output = plan.output()
    own = enumerate(names_and_ids(output))
    attributes = [output.apply(place) for place, (name, _) in own if name in names]
    without = project(plan, attributes, spark)
    set_hidden(without, attributes, spark)
    return frame_of(without, spark)


def names_and_ids(attributes: Any) -> list[tuple[str, int]]:
    """Return the names and ids of a Scala sequence of attributes, in one call."""
    text = attributes.mkString("\0")
    return [_read(one) for one in text.split("\0")] if text else []


def named(expressions: Any, ids: set[int]) -> list[Any]:
    """Return those of a Scala sequence of expressions that make columns with these ids."""
    found = ((place, _ALIAS.search(text)) for place, text in enumerate(texts(expressions)))
    return [expressions.apply(place) for place, alias in found if alias and int(alias[1]) in ids]


def made_ids(columns: Any) -> list[int]:
    """Return the ids of a Scala sequence of a Project's columns."""
    return [_read(text)[1] for text in texts(columns)]


def texts(expressions: Any) -> list[str]:
    """Return the texts of a Scala sequence of expressions."""
    found: list[str] = expressions.mkString("\0").split("\0")
    if len(found) != expressions.size():  # a literal has the separator
        found = [expression.toString() for expression in sequence(expressions)]
    return found


def _read(attribute: str) -> tuple[str, int]:
    found = _ATTRIBUTE.fullmatch(attribute)
    assert found is not None, attribute
    return found[1], int(found[2])


def set_hidden(project: Any, attributes: Iterable[Any], spark: SparkSession) -> None:
    """Let a Project hide attributes of its child: they are found if asked for, but not shown.

    Spark does the same with the second key of a join by a column's name.
    """
    project.setTagValue(_hidden_tag(spark), scala(attributes, spark))


def hidden(project: Any, spark: SparkSession) -> list[Any] | None:
    """Return the attributes that a Project hides; None if it hides those of its child."""
    found = project.getTagValue(_hidden_tag(spark))
    return sequence(found.get()) if found.isDefined() else None


def with_children(plan: Any, new: Iterable[Any], spark: SparkSession) -> Any:
    """Return a plan over other children."""
    return plan.withNewChildren(scala(new, spark))


def children(plan: Any) -> list[Any]:
    """Return the children of a plan, without subqueries, or of an expression."""
    return sequence(plan.children())


def parts(plan: Any) -> list[Any]:
    """Return the children and the subqueries of a plan."""
    return [*sequence(plan.children()), *sequence(plan.subqueries())]


def nodes(plan: Any) -> Iterator[Any]:
    """Return a plan and all plans inside it."""
    yield plan
    for part in parts(plan):
        yield from nodes(part)


def expressions(plan: Any) -> Iterator[Any]:
    """Return a plan's own expressions and all expressions inside them."""
    for expression in sequence(plan.expressions()):
        yield from _with_parts(expression)


def _with_parts(expression: Any) -> Iterator[Any]:
    yield expression
    for part in children(expression):
        yield from _with_parts(part)


def class_name(expression: Any) -> str:
    """Return the name of an expression's class, which is the same whatever a query calls it."""
    return str(expression.getClass().getSimpleName())


def identity(plan: Any) -> str:
    """Return a key that is the same for equal plans; it ignores expression ids, not seeds."""
    return f"{plan.canonicalized().hashCode()}:{plan.canonicalized().toString()}"


def sequence(scala: Any) -> list[Any]:
    """Return a Scala sequence as a list."""
    return [scala.apply(index) for index in range(scala.size())]


def jvm(spark: SparkSession) -> Any:
    """Return the session's view of the JVM."""
    found = spark._jvm
    assert found is not None
    return found


def _hidden_tag(spark: SparkSession) -> Any:
    return _project(jvm(spark)).hiddenOutputTag()


# To find a class takes a call of the JVM for each part of its name.
@cache
def _project(jvm: Any) -> Any:
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project


@cache
def _converters(jvm: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters


def scala(items: Iterable[Any], spark: SparkSession) -> Any:
    """Return a Scala sequence of items."""
    found = jvm(spark).java.util.ArrayList()
    for item in items:
        found.add(item)
    return _converters(jvm(spark)).asScala(found).toSeq()
