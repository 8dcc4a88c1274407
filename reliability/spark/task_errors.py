"""What a Spark task of this package raised, as the driver hears of it: in the text of an error."""

from __future__ import annotations

import re

from reliability.core.errors import ReliabilityError, error_types

_RAISED = re.compile(
    r"^reliability\.core\.errors\.\w+: \[([A-Z_]+)\] (.+?)(?: What to do: .*)?$", re.MULTILINE
)


def raised_by_task(error: BaseException) -> ReliabilityError | None:
    """Return the error of this package that ended a task, None if it was another.

    >>> raised = "reliability.core.errors.TextNotStorable: [TEXT_NOT_STORABLE] it lacks the euro"
    >>> print(raised_by_task(RuntimeError(f"Traceback:\\n{raised} What to do: …\\n")).what)
    it lacks the euro
    """
    found = _RAISED.search(str(error))
    if found is None or found[1] not in error_types():
        return None
    return error_types()[found[1]](found[2])
