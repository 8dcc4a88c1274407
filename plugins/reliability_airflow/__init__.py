"""The Airflow side: a topology as a DAG. Operators parse, call the runner and map errors."""

from reliability_airflow.dag_factory import topology_dag

__all__ = ["topology_dag"]
