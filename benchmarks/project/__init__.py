"""How the suite drives this project without Airflow."""
