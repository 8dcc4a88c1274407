"""How long the signs of life of a run, an attempt and its task last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Timeouts in seconds; the lease of a running attempt is an option of its topology.

    :param submit: from the grant of an attempt to the driver's first message; includes
        spark-submit and the cluster's queue
    :param request: the longest time between two signs of life of a run with an open request
    :param overdue: how long a processed txid is left to its own task; after that, any sweep
        commits it when its turn has come
    """

    submit: int = 1800
    request: int = 600
    overdue: int = 10


DEFAULT_LEASES = Leases()
