"""Let all copies of a sub-plan have the same columns, so that they are seen to be one (V5).

If an operation asks for a hidden column, Spark adds it to every Project below that operation. So
what two states share has another shape in each of them, although it is one frame in the process
function. Here every copy gets all hidden columns that any frame has asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reliability.core.fold import ACCOUNTING
from reliability.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Their other columns do not depend on what else their input has.
_LET_PASS = frozenset(
    {
        "CollectMetrics",
        "Deduplicate",
        "Filter",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Tail",
        "Window",
    }
)
# They show only columns of their own.
_MAKE_NEW = frozenset({"Aggregate", "Expand"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What the frames have asked for.

    :param names: of columns that are carried
    :param leaves: those that show hidden columns of their own
    """

    names: frozenset[str]
    leaves: frozenset[str]


def asked_by(frames: Sequence[DataFrame]) -> Asked:
    """Return what frames have asked for, each in its own plan."""
    nodes = [node for frame in frames for node in catalyst.nodes(catalyst.analyzed(frame))]
    leaves = [node for node in nodes if _is_leaf(node)]
    own = {name for leaf in leaves for name in _names(leaf.metadataOutput())}
    shown = {name for node in nodes if not _is_leaf(node) for name in _names(node.output())}
    return Asked(
        names=frozenset(ACCOUNTING) | (own & shown),
        leaves=frozenset(
            catalyst.identity(leaf) for leaf in leaves if not own.isdisjoint(_names(leaf.output()))
        ),
    )


def with_carried(frame: DataFrame, asked: Asked) -> DataFrame:
    """Return a frame with the same columns, whose plan carries all that was asked for."""
    spark, plan = frame.sparkSession, catalyst.analyzed(frame)
    project = catalyst.select(carry(plan, asked, spark), plan.output(), spark)
    # what is asked for from now on must not change what is below
    catalyst.set_hidden(project, [], spark)
    return catalyst.frame_of(project, spark)


def carry(plan: Any, asked: Asked, spark: SparkSession) -> Any:
    """Return a plan that shows, after its own columns, all that was asked for."""
    return _Carrier(asked, spark).carry(plan)


def _names(attributes: Any) -> set[str]:
    return {name for name, _ in catalyst.names_and_ids(attributes)}


def _is_leaf(plan: Any) -> bool:
    return not plan.children().size()


@dataclass(frozen=True, slots=True)
class _Carrier:
    """Makes one plan carry what was asked for.

    :param keys: the ids of what is called like the second key of a join by a column's name. It is
        hidden too, and in a self join nothing says which of the two it is.
    """

    asked: Asked
    spark: SparkSession
    keys: set[int] = field(default_factory=set)

    def carry(self, plan: Any) -> Any:
        below = catalyst.children(plan)
        if not below:
            return self._leaf(plan)
        carrying = [self.carry(child) for child in below]
        name = str(plan.nodeName())
        if name == "Project":
            return self._project(plan, carrying[0])
        passing = range(len(below)) if name in _LET_PASS | _MAKE_NEW else []
        if name == "Join":
            passing = [self._side(carrying)]
        return catalyst.with_children(
            plan,
            [
                new if place in passing else self._as_before(new, old)
                for place, (new, old) in enumerate(zip(carrying, below, strict=True))
            ],
            self.spark,
        )

    def _leaf(self, plan: Any) -> Any:
        if self.asked.names.isdisjoint(_names(plan.metadataOutput())):
            return plan
        more = plan.withMetadataColumns()
        return more if catalyst.identity(more) in self.asked.leaves else plan

    def _side(self, sides: Sequence[Any]) -> int:
        """Return which side of a join passes on: both may carry the same columns."""
        return 1 if self.asked.names.isdisjoint(_names(sides[0].output())) else 0

    def _as_before(self, new: Any, old: Any) -> Any:
        """Return a plan with the columns that it had, in their order."""
        if catalyst.names_and_ids(new.output()) == catalyst.names_and_ids(old.output()):
            return new
        return catalyst.select(new, old.output(), self.spark)

    def _project(self, project: Any, child: Any) -> Any:
        """Return a Project that shows what is carried after all other columns."""
        output, columns = child.output(), project.projectList()
        below, made = catalyst.names_and_ids(output), catalyst.made_ids(columns)
        keys = {attribute.name() for attribute in catalyst.hidden(project, self.spark) or []}
        self.keys.update(i for name, i in below if name in keys)
        passing = {
            i: output.apply(place)
            for place, (name, i) in enumerate(below)
            if name in self.asked.names or i in self.keys
        }
        own = [columns.apply(place) for place, i in enumerate(made) if i not in passing]
        new = catalyst.select(
            child, catalyst.scala([*own, *passing.values()], self.spark), self.spark
        )
        new.copyTagsFrom(project)
        return new
