"""Which tasks of a run of Airflow to clear for a topology, or for some of its txids.

Everywhere `group` is what the ids of the topology's tasks begin with, such as `shop.`; it is empty
in a DAG of the topology alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.names import TXID_LABEL
from reliability.transaction.correct.rollback import EMIT, SETTLE

if TYPE_CHECKING:
    from reliability.deployment.airflow_api import TaskInstance

TRANSACTION = "transaction."
COMMITTED = "committed"
_LABEL = re.compile(f"{TXID_LABEL}(\\d+)")
Task = tuple[str, int]  # its id, and its map index or -1


def tasks_of_topology(tasks: Sequence[TaskInstance], group: str) -> tuple[Task, ...]:
    """Return what to clear of a run so that it emits again; empty for all of the run.

    :param tasks: all of the run's
    """
    if not group:
        return ()
    own = [(task.task_id, task.map_index) for task in tasks if task.task_id.startswith(group)]
    return (*dict.fromkeys((*own, *_not_started(tasks, group))),)


def tasks_of_txids(
    tasks: Sequence[TaskInstance], group: str, txids: Sequence[int], emitted: Sequence[int] | None
) -> tuple[Task, ...] | None:
    """Return what to clear of a run for some of its txids, with what ends the run.

    :param tasks: all of the run's
    :param emitted: what its `emit` returned, None if Airflow does not have it
    :returns: None if the txids are not all in `emitted`: only a clear of all tasks helps
    """
    emitted = _labelled(tasks, group) if emitted is None else emitted
    if emitted is None or not {*txids} <= {*emitted}:
        return None
    indexes = {emitted.index(txid) for txid in txids}
    if {*emitted} <= {*txids}:
        indexes.add(-1)  # what was skipped before it was mapped; mapped, it is all of the run's
    own = [(task.task_id, task.map_index) for task in tasks if task.map_index in indexes]
    mapped = sorted(task for task in own if task[0].startswith(group + TRANSACTION))
    return (*mapped, *ends_of_topology(tasks, group))


def _labelled(tasks: Sequence[TaskInstance], group: str) -> list[int] | None:
    """Return a run's txids by the labels of its mapped tasks; None unless they tell all of them.

    Airflow does not have what `emit` has returned if XCom's backend keeps it elsewhere. A task that
    has not begun has no label, and one that a clear moved has an old one: txids ascend.
    """
    own = [task for task in tasks if task.task_id.startswith(group + TRANSACTION)]
    labels = {(task.map_index, task.label) for task in own if task.map_index >= 0}
    found = [(index, _LABEL.fullmatch(label or "")) for index, label in labels]
    told = sorted((index, int(match[1])) for index, match in found if match)
    txids = [txid for _, txid in told]
    is_whole = bool(told) and [index for index, _ in told] == sorted({index for index, _ in labels})
    return txids if is_whole and txids == sorted({*txids}) else None


def ends_of_topology(tasks: Sequence[TaskInstance], group: str) -> tuple[Task, ...]:
    """Return the tasks that end a topology, with what has not started behind them."""
    ends = [(SETTLE, -1)] if not group else [(group + COMMITTED, -1), (group + SETTLE, -1)]
    return (*ends, *_not_started(tasks, group))


def _not_started(tasks: Sequence[TaskInstance], group: str) -> list[Task]:
    """Return what has not started behind a topology's tasks, as these did not succeed.

    `fail_fast` and `dagrun_timeout` let Airflow skip it; what a branch has skipped, it skips again.
    What has emitted in another topology's group is resumed with that.
    """
    states = {task.task_id: task.state for task in tasks if task.map_index < 0}
    own = [group + name for name in (EMIT, COMMITTED, SETTLE)]
    stops = {"upstream_failed", *({states.get(name) for name in own[1:]} & {"skipped"})}
    others = {name.removesuffix(SETTLE) for name in states if name.endswith(f".{SETTLE}")} - {group}
    emitted = [other for other in others if states.get(other + EMIT) == "success"]
    return [
        (task.task_id, task.map_index)
        for task in tasks
        if task.state in stops
        and task.task_id not in own
        and not task.task_id.startswith((group + TRANSACTION, *emitted))
    ]
