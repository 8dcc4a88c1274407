"""Find the error that a Spark task of this package raised, in the text of the driver's error."""

from __future__ import annotations

import re

from reliability.core.errors import ReliabilityError, error_types

_RAISED = re.compile(
    r"^reliability\.core\.errors\.\w+: \[([A-Z_]+)\] (.+?)(?:\.? What to do: .*)?$", re.MULTILINE
)


def raised_by_task(error: BaseException) -> ReliabilityError | None:
    """Return the error of this package that a task raised, None if it raised another.

    >>> raised = "reliability.core.errors.TextNotStorable: [TEXT_NOT_STORABLE] it lacks the euro"
    >>> print(raised_by_task(RuntimeError(f"Traceback:\\n{raised}. What to do: …\\n")).what)
    it lacks the euro
    """
    match = _RAISED.search(str(error))
    if match is None or match[1] not in error_types():
        return None
    return error_types()[match[1]](match[2])
