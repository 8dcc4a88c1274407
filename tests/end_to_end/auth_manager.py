"""Airflow's simple login with one user more: `stranger` may do everything but with one DAG."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from tests.end_to_end.users import SECRET


class OneDagLess(SimpleAuthManager):
    """What a deployment's own auth manager does: permissions of each DAG."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **kwargs: Any) -> bool:
        """Say whether a user may do something with a DAG."""
        if user.username == "stranger" and details is not None and details.id == SECRET:
            return False
        return bool(super().is_authorized_dag(user=user, details=details, **kwargs))
