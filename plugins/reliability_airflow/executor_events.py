"""Wait until the scheduler has processed the executor's event of a task that has deferred.

A task that defers leaves its worker, and the executor tells the scheduler that its process ended.
If the task resumes before the scheduler has processed this event, the scheduler takes it for the
end of the resumed task, fails that and ends its process (apache/airflow#72716, #71580). So no
trigger of this project fires before.

The scheduler's heartbeat shows it. Each turn of the scheduler's loop processes the events that are
there, and then writes a heartbeat if the last one is some seconds old. The first new heartbeat may
be of a turn that had processed its events before the task left. The turn of the second began after
the first, so it has processed the task's event, or a turn between them has.

Two things can hide an event from this, and Airflow tells of neither. A process may end long after
its task has deferred: so the count begins some seconds later, with remote logs or pods more. Of
several schedulers, Airflow tells the newest heartbeat only: a slow one is not seen beside a quick
one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from functools import cache

logger = logging.getLogger(__name__)

READ_SECONDS = 1.0
#: How long to wait while Airflow does not tell when its scheduler's last heartbeat was.
BLIND_SECONDS = 60.0
#: How long the process of a task may take to end after the task has deferred.
END_SECONDS = 2.0
UPLOAD_SECONDS = 15.0
_READ_TIMEOUT_SECONDS = 5.0
_OLD_AND_TWO_NEW = 3


class SchedulerHeartbeats:
    """The scheduler's heartbeats as the triggers of this process see them: one reading for all."""

    def __init__(self) -> None:
        self._asking: list[asyncio.Future[str | None]] = []
        self._reader: asyncio.Task[None] | None = None

    async def events_are_processed(self) -> None:
        """Return when the executor's events of before this call have been processed."""
        await asyncio.sleep(_seconds_to_end())
        told_at, seen = time.monotonic(), set[str]()
        while len(seen) < _OLD_AND_TWO_NEW:
            if (heartbeat := await self._next()) is not None:
                told_at = time.monotonic()
                seen.add(heartbeat)
            elif time.monotonic() - told_at > BLIND_SECONDS:
                logger.warning(
                    "%s does not tell the scheduler's heartbeat. The task resumes without it; if "
                    "the scheduler is slower than %d s, Airflow may end this try.",
                    " and ".join(health_urls()),
                    BLIND_SECONDS,
                )
                return

    async def _next(self) -> str | None:
        """Return the last heartbeat by a reading that begins after this call."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()
        self._asking.append(answer)
        if self._reader is None or self._reader.done():
            self._reader = loop.create_task(self._read())
        return await answer

    async def _read(self) -> None:
        while self._asking:
            await asyncio.sleep(READ_SECONDS)
            asking, self._asking = self._asking, []
            try:
                heartbeat = await read_heartbeat()
            except Exception:  # such as a file of certificates that is not on this host
                logger.exception("the scheduler's heartbeat cannot be read")
                heartbeat = None
            for answer in asking:
                if not answer.done():  # its trigger was cancelled
                    answer.set_result(heartbeat)


def _seconds_to_end() -> float:
    from airflow.configuration import conf

    is_uploaded = conf.getboolean("logging", "remote_logging", fallback=False)
    is_pod = "Kubernetes" in conf.get("core", "executor", fallback="")
    return UPLOAD_SECONDS if is_uploaded or is_pod else END_SECONDS


def health_urls() -> list[str]:
    """Return where Airflow tells how its components are; it asks for no login there.

    The server that tasks ask comes first. It may serve nothing but tasks.
    """
    from airflow.configuration import conf

    base = conf.get("api", "base_url", fallback="/") or "/"
    public = f"http://localhost:8080{base}" if base.startswith("/") else base
    for_tasks = conf.get("core", "execution_api_server_url", fallback=None) or public
    servers = (for_tasks.rstrip("/").removesuffix("/execution"), public)
    return list(dict.fromkeys(f"{server.rstrip('/')}/api/v2/monitor/health" for server in servers))


async def read_heartbeat() -> str | None:
    """Return when the last heartbeat of a scheduler was; None if Airflow does not tell."""
    import httpx  # Airflow's tasks reach the same server with it

    async with httpx.AsyncClient(verify=_trusted(), timeout=_READ_TIMEOUT_SECONDS) as client:
        for url in health_urls():
            try:
                report = (await client.get(url)).json()
                if (heartbeat := report["scheduler"]["latest_scheduler_heartbeat"]) is not None:
                    return str(heartbeat)
            except (httpx.HTTPError, ValueError, TypeError, KeyError) as error:
                logger.debug("no heartbeat from %s: %s", url, error)
    return None


@cache
def _trusted() -> ssl.SSLContext:
    """Trust what Airflow's own client of this server trusts."""
    from airflow.configuration import conf

    context = ssl.create_default_context()
    if certificate := conf.get("api", "ssl_cert", fallback=""):
        context.load_verify_locations(certificate)
    return context


heartbeats = SchedulerHeartbeats()
"""The heartbeats that this process sees."""
