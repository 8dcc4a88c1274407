"""What people test their own parts with: `check_spout` drives a spout over a source of the test's.

Nothing here needs Airflow or Postgres. The product imports none of it.
"""

from reliability.testing.check_spout import check_spout
from reliability.testing.source import Source, SpoutBroken

__all__ = ["Source", "SpoutBroken", "check_spout"]
