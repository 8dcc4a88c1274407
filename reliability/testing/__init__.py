"""What people test their own parts with.

- `check_spout` drives a spout over a source of the test's; it needs neither Airflow nor Postgres
- `check_dags` looks at a folder of DAG files
- the pytest plugin (`plugin`) has the fixture `pipeline`, in which a topology runs with real Spark
  and real Postgres, and the marker `faultpoints`; `assert_exactly_once` tries all that can happen

The product imports none of it.
"""

from reliability.testing.check_spout import check_spout
from reliability.testing.dags import DagsBroken, check_dags
from reliability.testing.exactly_once import assert_exactly_once
from reliability.testing.pipeline import Pipeline
from reliability.testing.source import Source, SpoutBroken

__all__ = [
    "DagsBroken",
    "Pipeline",
    "Source",
    "SpoutBroken",
    "assert_exactly_once",
    "check_dags",
    "check_spout",
]
