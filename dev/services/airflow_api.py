"""A small client of Airflow's REST API: a token, then JSON in and JSON out."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from dev.errors import DevError

#: A proxy of the environment must not be asked for an address of this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AirflowApiError(DevError):
    """Airflow answered with an error; `status` and `body` say which."""

    def __init__(self, method: str, url: str, status: int, body: str) -> None:
        super().__init__(f"{method} {url}: {status} {body[:300]}")
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
    timeout: float = 30.0
    _token: str | None = field(default=None, repr=False)

    def get(self, path: str, **query: object) -> Any:
        return self._authorised("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: object = None) -> Any:
        return self._authorised("POST", path, {} if body is None else body)

    def patch(self, path: str, body: object) -> Any:
        return self._authorised("PATCH", path, body)

    def delete(self, path: str) -> Any:
        return self._authorised("DELETE", path)

    def health(self) -> dict[str, Any] | None:
        """Return what /monitor/health says, None while nobody answers. Needs no login."""
        try:
            answer = self._request("GET", "/api/v2/monitor/health", None, {}, timeout=5)
        except (OSError, ValueError, AirflowApiError):
            return None
        return answer if isinstance(answer, dict) else None

    def token(self) -> str:
        if self._token is None:
            login = {"username": self.username, "password": self.password}
            answer = self._request("POST", "/auth/token", login, {}, self.timeout)
            self._token = str(answer["access_token"])
        return self._token

    def _authorised(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token()}"}
        return self._request(method, path, body, headers, self.timeout)

    def _request(
        self, method: str, path: str, body: object, headers: dict[str, str], timeout: float
    ) -> Any:
        url = self.base_url + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            url,
            data=data,
            method=method,
            headers={"Accept": "application/json", "Content-Type": "application/json", **headers},
        )
        try:
            with OPENER.open(request, timeout=timeout) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise AirflowApiError(method, url, error.code, text) from error
        return json.loads(answer) if answer else None
