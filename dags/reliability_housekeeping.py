"""Housekeeping: every minute, for every topology, finish what somebody left behind."""

from reliability_airflow import housekeeping_dag

dag = housekeeping_dag()
