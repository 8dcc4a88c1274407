"""The Airflow side: a topology as a DAG. Operators parse, call the library and map errors."""

from reliability_airflow.dag_factory import topology_dag
from reliability_airflow.housekeeping import housekeeping_dag, verification_dag

__all__ = ["housekeeping_dag", "topology_dag", "verification_dag"]
