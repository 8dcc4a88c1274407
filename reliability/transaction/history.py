"""What is kept of every txid, for those who ask: explain a row, verify the tables, compact."""

from __future__ import annotations

from reliability.transaction.compaction import Compacted, compact
from reliability.transaction.explain import Contribution, Explanation, explain
from reliability.transaction.verify import Differing, Verified, verify

__all__ = [
    "Compacted",
    "Contribution",
    "Differing",
    "Explanation",
    "Verified",
    "compact",
    "explain",
    "verify",
]
