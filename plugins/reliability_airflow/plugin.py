"""What Airflow's UI gets of this package: the page, and the links to it.

Every component of Airflow loads this module, so it is light: the page's application is made when
the API server first asks for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from reliability_airflow.page.addresses import PREFIX

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LazyPage:
    """The page as an ASGI application that is made at the first request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @cached_property
    def _app(self) -> Any:
        from reliability_airflow.page.app import make_app

        return make_app()


def views(base_url: str) -> list[dict[str, Any]]:
    """Return where Airflow's UI shows the page: in the navigation, and as tabs.

    :param base_url: Airflow's own address, which may have a path; its UI does not put that before
        an address
    """
    place = urlsplit(base_url).path.rstrip("/") + PREFIX

    def view(destination: str, name: str, route: str, href: str) -> dict[str, Any]:
        return {
            "name": name,
            "destination": destination,
            "url_route": route,
            "href": f"{place}{href}",
            "icon": f"{place}/static/icon.svg",
            "icon_dark_mode": f"{place}/static/icon-dark.svg",
        }

    run = "/of-dag/{DAG_ID}/runs?run_id={RUN_ID}"
    task = f"{run}&map_index={{MAP_INDEX}}"
    return [
        {**view("nav", "Transactions", "reliability", "/"), "category": "browse"},
        view("dag", "Transactions", "reliability-dag", "/of-dag/{DAG_ID}"),
        view("dag_run", "Transactions", "reliability-run", run),
        view("task_instance", "Transaction", "reliability-task", task),
    ]


class ReliabilityPlugin(AirflowPlugin):
    """The page, in the navigation and as a tab of DAGs, runs and task instances."""

    name = "reliability"
    fastapi_apps = [{"app": LazyPage(), "url_prefix": PREFIX, "name": "reliability"}]  # noqa: RUF012
    external_views = views(conf.get("api", "base_url", fallback="") or "")
