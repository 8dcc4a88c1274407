"""Postgres, Airflow and Spark as processes of this machine."""
