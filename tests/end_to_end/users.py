"""Who logs in to the Airflow of these tests, and the DAG that one of them must not know of."""

from __future__ import annotations

#: the users beside the administrator, with their roles
USERS = {"viewer": "viewer", "user": "user", "stranger": "admin"}
#: what the stranger must not know of
SECRET = "words_paged"
