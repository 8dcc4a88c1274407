"""Let all copies of a sub-plan have the same columns, so that they are seen to be one (V5).

If an operation asks for a hidden column, Spark adds it to every Project below that operation. So
what two states share has another shape in each of them, although it is one frame in the process
function. Here every copy gets all hidden columns that any frame has asked for, above a union too,
where Spark stops what is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reliability.core.fold import ACCOUNTING
from reliability.spark.frames.accounting import hidden_above_unions
from reliability.spark.frames.jvm import Attribute, Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Their other columns do not depend on what else their input has.
_LET_PASS = frozenset(
    {
        "CollectMetrics",
        "Deduplicate",
        "Filter",
        "Generate",
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
    """What frames have asked for, each in its own plan.

    :param names: of columns that are carried
    :param leaves: those that show hidden columns of their own
    """

    names: frozenset[str]
    leaves: frozenset[str]

    @classmethod
    def by(cls, frames: Sequence[DataFrame]) -> Asked:
        nodes = [node for frame in frames for node in Plan.of(frame).nodes()]
        leaves = [node for node in nodes if node.is_leaf]
        own = {name for leaf in leaves for name in _names(leaf.reachable)}
        shown = {name for node in nodes if not node.is_leaf for name in _names(node.output)}
        return cls(
            names=frozenset(ACCOUNTING) | (own & shown),
            leaves=frozenset(
                leaf.identity for leaf in leaves if not own.isdisjoint(_names(leaf.output))
            ),
        )

    def within(self, frame: DataFrame) -> DataFrame:
        """Return a frame with the same columns, whose plan carries all that was asked for."""
        plan = Plan.of(frame)
        project = self.carried(plan).select_as(plan)
        project.hide([])  # what is asked for from now on must not change what is below
        return project.frame()

    def carried(self, plan: Plan) -> Plan:
        """Return a plan that shows, after its own columns, all that was asked for."""
        return self._carry(hidden_above_unions(plan), set())

    def _carry(self, plan: Plan, keys: set[int]) -> Plan:
        """Do what `carried` does.

        :param keys: the ids of what is called like the second key of a join by a column's name. It
            is hidden too, and in a self join nothing says which of the two it is.
        """
        below = plan.children
        if not below:
            return self._leaf(plan)
        carrying = [self._carry(child, keys) for child in below]
        name = plan.name
        if name == "Project":
            return self._project(plan, carrying[0], keys)
        passing = range(len(below)) if name in _LET_PASS | _MAKE_NEW else []
        if name == "Join":  # one side: both may carry the same columns
            passing = [1 if self.names.isdisjoint(_names(carrying[0].output)) else 0]
        if name == "LateralJoin":
            passing = [0]
        return plan.over(
            new if place in passing else _as_before(new, old)
            for place, (new, old) in enumerate(zip(carrying, below, strict=True))
        )

    def _leaf(self, plan: Plan) -> Plan:
        if self.names.isdisjoint(_names(plan.reachable)):
            return plan
        more = plan.with_metadata()
        return more if more.identity in self.leaves else plan

    def _project(self, project: Plan, child: Plan, keys: set[int]) -> Plan:
        """Return a Project that shows what is carried after all other columns."""
        below = child.output
        second_keys = _names(project.hidden or [])
        keys.update(a.id for a in below if a.name in second_keys)
        passing = {a.id: a for a in below if a.name in self.names or a.id in keys}
        own = [column for column in project.made if column.id not in passing]
        return child.select([*own, *passing.values()]).tagged_as(project)


def _as_before(new: Plan, old: Plan) -> Plan:
    now, before = ([(a.name, a.id) for a in plan.output] for plan in (new, old))
    return new if now == before else new.select_as(old)


def _names(attributes: Sequence[Attribute]) -> set[str]:
    return {attribute.name for attribute in attributes}
