"""Requests for txids, and the tries of the tasks that make them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reliability.core.statement_key import StatementKey


class RequestKind(str, Enum):
    """COMMIT requests an uncommitted txid; REPLAY requests a committed one again."""

    COMMIT = "COMMIT"
    REPLAY = "REPLAY"


class RequestStatus(str, Enum):
    """OPEN is in progress; the other statuses are final, except that GIVEN_UP can be reopened.

    PARKED was closed by a person who parked the txid: only a clear makes a new request (C7).
    """

    OPEN = "OPEN"
    SATISFIED = "SATISFIED"
    CLOSED = "CLOSED"
    GIVEN_UP = "GIVEN_UP"
    PARKED = "PARKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; an attempt newer than `granted_after` was granted after the request was made.

    A dry run is a replay request that reports what would change and changes nothing.

    :param dag_id, run_id: the run that made it
    :param tasks_ended: all tasks of the run for the txid have ended since
    :param downstream_has_worked: a task downstream of the asking one has already worked for it
    """

    request_id: int
    number: int
    kind: RequestKind
    status: RequestStatus
    granted_after: int
    is_dry_run: bool
    reason: str = ""
    tasks_ended: bool = False
    downstream_has_worked: bool = False
    dag_id: str = ""
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTry(StatementKey):
    """One try of an Airflow task; it distinguishes a clear from a retry.

    :param max_tries: a clear sets it to the number of tries so far plus the task's retries
    :param try_id: Airflow's id of the try; a retry and a clear change it, a deferral does not
    :param clear_number: of the run; it increases when any of its tasks is cleared
    :param run_started: when the run began; changes if the run was deleted and created again
    :param is_first: the task counts it as its first try since it was created or cleared
    :param is_new: it is the first try that the task has ever had
    """

    max_tries: int
    try_id: str = ""
    clear_number: int = 0
    run_started: str = ""
    is_first: bool = False
    is_new: bool = False

    def is_of_another_run(self, recorded: TaskTry) -> bool:
        """Say whether the run was deleted and created again with the same run_id."""
        if self.clear_number == recorded.clear_number:
            return recorded.run_started not in ("", self.run_started)
        return self.clear_number < recorded.clear_number
