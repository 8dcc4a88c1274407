"""The Airflow side: a topology as a DAG. Operators parse, call the library and map errors."""

import reliability_airflow.releases  # noqa: F401  # first: it refuses what the others fail in
from reliability_airflow.assets import state_asset
from reliability_airflow.dag_factory import topology_dag
from reliability_airflow.groups import topology_group
from reliability_airflow.housekeeping import housekeeping_dag, verification_dag

__all__ = ["housekeeping_dag", "state_asset", "topology_dag", "topology_group", "verification_dag"]
