"""The local development environment: Postgres, Airflow and Spark on this machine, for one clone."""
