"""A small client of Airflow's REST API: a token, then JSON in and JSON out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from dev.errors import DevError


class AirflowApiError(DevError):
    """Airflow answered with an error, or not at all (status 0); `body` says more."""

    def __init__(self, request: str, status: int, body: str) -> None:
        super().__init__(f"{request}: {status} {body[:300]}")
        self.status = status
        self.body = body


@dataclass(slots=True, kw_only=True)
class AirflowApi:
    """Requests to one Airflow as one user; logs in when first needed.

    >>> api = AirflowApi(base_url="http://127.0.0.1:8080", username="admin", password="...")
    >>> api.get("/api/v2/dags/balances/dagRuns", limit=5)  # doctest: +SKIP
    """

    base_url: str
    username: str
    password: str = field(repr=False)
    _token: str | None = field(default=None, repr=False)

    def get(self, path: str, **query: Any) -> Any:
        return self._authorised("GET", path, params=query)

    def post(self, path: str, body: object = None) -> Any:
        return self._authorised("POST", path, json={} if body is None else body)

    def patch(self, path: str, body: object) -> Any:
        return self._authorised("PATCH", path, json=body)

    def put(self, path: str) -> Any:
        return self._authorised("PUT", path)

    def delete(self, path: str) -> Any:
        return self._authorised("DELETE", path)

    def health(self) -> dict[str, Any] | None:
        """Return what /monitor/health says, None while nobody answers. Needs no login."""
        try:
            answer = self._request("GET", "/api/v2/monitor/health", timeout=5)
        except (AirflowApiError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def token(self) -> str:
        if self._token is None:
            login = {"username": self.username, "password": self.password}
            self._token = str(self._request("POST", "/auth/token", json=login)["access_token"])
        return self._token

    def _authorised(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token()}"}
        return self._request(method, path, headers=headers, **options)

    def _request(self, method: str, path: str, *, timeout: float = 30, **options: Any) -> Any:
        url = self.base_url + path
        try:
            # A proxy of the environment must not be asked for an address of this machine.
            answer = httpx.request(
                method, url, timeout=timeout, trust_env=False, verify=False, **options
            )
        except httpx.TransportError as error:
            raise AirflowApiError(f"{method} {url}", 0, str(error)) from error
        if answer.is_error:
            raise AirflowApiError(f"{method} {url}", answer.status_code, answer.text)
        return answer.json() if answer.content else None
