"""One small file through Airflow, from the DAG run to its commit."""
