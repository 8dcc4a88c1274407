"""Housekeeping: every minute, for every topology, finish what dead processes left unfinished."""

from reliability_airflow import housekeeping_dag

dag = housekeeping_dag()
