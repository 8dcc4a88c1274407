"""The warm engine: a Spark application that lends sessions to the drivers of steps on its host.

spark-submit runs this file (`reliability engine run`). A step's driver is a process of its own, as
with a spark-submit per step, but it attaches to this application's JVM instead of starting one.
Each step has a session with a cache, views and settings of its own, and a Py4J gateway of its own,
whose secret is of no use once the step has ended. A gateway keeps every object that its driver has
used: when it is shut down, the JVM can free them all, even if the driver was killed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import selectors
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reliability.core.errors import EngineUnavailable
from reliability.spark.engine_socket import STEP, STOP, check_private, socket_path, versions
from reliability.spark.imports import drop_package_folder, prefer_installed_pyspark
from reliability.spark.session import PARENT_OF_WORKERS, pin_zone

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger("reliability.engine")
MAX_REQUEST = 100  # bytes
TOUCH_SECONDS = 3600.0
_END = "end"


class StepSession:
    """What one step has in the engine: a session, and the gateway that leads to it.

    :param number: the least that no other running step has; it names the scheduler's pool
    """

    def __init__(self, context: SparkContext, number: int) -> None:
        jvm: Any = context._jvm
        self.number = number
        self._context = context._jsc.sc()
        # newSession() would share cached plans, the global views and the catalog with other steps:
        # they could read what another step has evaluated, and lose it when that step ends (V5).
        self._session = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")(self._context, {})
        self._secret = secrets.token_hex(32)
        builder = jvm.py4j.ClientServer.ClientServerBuilder(self._session)
        self._gateway = builder.authToken(self._secret).javaPort(0).build()
        self._gateway.startServer()

    def access(self) -> dict[str, Any]:
        """Return what the driver needs to attach; it holds a secret."""
        return {
            "port": self._gateway.getJavaServer().getListeningPort(),
            "secret": self._secret,
            "pool": f"step {self.number}",
        }

    def end(self) -> None:
        """Cancel the step's jobs, also those that the JVM is about to start, and free its memory.

        The driver has put its jobs into a group that is called as its session's id.
        """
        try:
            self._context.cancelJobGroupAndFutureJobs(self._session.sessionUUID())
            self._session.interruptAll()
            shared = self._session.sharedState()
            shared.cacheManager().clearCache()
            listener = shared.statusStore().listener()
            if listener.isDefined():
                self._context.listenerBus().removeListener(listener.get())
            self._detach_tab(shared.statusStore())
        finally:
            self._gateway.shutdown()

    def _detach_tab(self, store: Any) -> None:
        """Take the session's tab, and what answers for it, off Spark's page, which keeps them."""
        if self._context.ui().isEmpty():
            return
        ui = self._context.ui().get()
        tabs = ui.getTabs()
        for tab in [tabs.apply(place) for place in range(tabs.size())]:
            if tab.getClass().getSimpleName() == "SQLTab" and tab.sqlStore().equals(store):
                ui.detachTab(tab)


class Engine:
    """Answers requests until somebody stops it, or its JVM ends."""

    def __init__(self, context: SparkContext, listener: socket.socket) -> None:
        self._context = context
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._steps: dict[socket.socket, StepSession] = {}

    def serve(self) -> None:
        """Answer until a request to stop, SIGTERM or SIGINT, or the end of the JVM."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(_signals(), selectors.EVENT_READ, _END)
        # The JVM writes nothing to this process: if its standard input is readable, it has ended.
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, _END)
        try:
            while self._answer():
                pass
        finally:
            for connection in [*self._steps]:
                self._end(connection)

    def _answer(self) -> bool:
        """Wait for a request and answer it; return whether to go on."""
        self._touch()
        for key, _ in self._selector.select(TOUCH_SECONDS):
            if key.data == _END:
                return False
            connection = cast("socket.socket", key.fileobj)
            if connection is self._listener:
                self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)
            elif connection in self._steps:
                self._end(connection)  # a driver sends nothing: it has ended
            elif not self._answer_to(connection):
                return False
        return True

    def _touch(self) -> None:
        """Keep what cleans /tmp of old files from the socket and the lock.

        Without the lock's file another engine would begin, and without the socket none be found.
        """
        path = Path(self._listener.getsockname())
        for each in (path, _lock_of(path), path.parent):
            with suppress(OSError):
                os.utime(each)

    def _answer_to(self, connection: socket.socket) -> bool:
        """Answer a request; only a step's connection stays open."""
        request = ""
        try:
            request = connection.recv(MAX_REQUEST).decode(errors="replace").strip()
            answer = self._begin(connection).access() if request == STEP else self._status()
            told = {**answer, "versions": versions()}
            connection.sendall(json.dumps(told).encode() + b"\n")
        except ConnectionError:
            logger.info("who made a request has gone")
        except Exception:  # other steps go on
            logger.exception("a request was not answered")
        if connection not in self._steps:
            self._close(connection)
        return request != STOP

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "application_id": self._context.applicationId,
            "master": self._context.master,
            "steps": len(self._steps),
        }

    def _begin(self, connection: socket.socket) -> StepSession:
        taken = {step.number for step in self._steps.values()}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        step = self._steps[connection] = StepSession(self._context, number)
        return step

    def _end(self, connection: socket.socket) -> None:
        self._close(connection)
        try:
            self._steps.pop(connection).end()
        except Exception:  # other steps go on
            logger.exception("a step's session did not end in order")

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def _signals() -> socket.socket:
    """Return a socket that is readable once the process has been told to end."""
    told, teller = socket.socketpair()
    teller.setblocking(False)
    signal.set_wakeup_fd(teller.detach())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return told


def _context() -> SparkContext:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf()
    conf.setAll([*PARENT_OF_WORKERS.items()])
    # A worker that is used again has the modules of the step before, and maybe their old version.
    conf.set("spark.python.worker.reuse", "false")
    conf.setIfMissing("spark.scheduler.mode", "FAIR")  # a long step must not hold up a short one
    conf.setIfMissing("spark.ui.retainedJobs", "200")
    conf.setIfMissing("spark.ui.retainedStages", "200")
    conf.setIfMissing("spark.ui.retainedTasks", "10000")
    conf.setIfMissing("spark.sql.ui.retainedExecutions", "50")
    return SparkContext(appName="reliability engine", conf=conf)


def main() -> int:
    """Run an engine; return 1 if one runs already, or if there can be none."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    path = socket_path()
    try:
        with _bound(path) as listener:
            context = _context()
            listener.listen()
            logger.info("the engine answers at %s", path)
            try:
                Engine(context, listener).serve()
            finally:
                with suppress(Exception):  # the JVM has ended
                    context.stop()
    except EngineUnavailable as error:
        logger.error("%s", error)
        return 1
    return 0


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


@contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    """Make the socket, for the block; nobody is answered before it listens.

    :raises EngineUnavailable: another engine has it, or there can be none
    """
    with ExitStack() as made:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(path.parent)
            lock = made.enter_context(_lock_of(path).open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EngineUnavailable(
                    f"an engine runs already at {path}", remedy="run `reliability engine status`."
                ) from None
            path.unlink(missing_ok=True)  # of an engine that was killed
            made.callback(path.unlink, missing_ok=True)
            listener = made.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
        except OSError as error:
            raise EngineUnavailable(
                f"cannot make the socket {path}: {error}",
                remedy="set RELIABILITY_ENGINE_FOLDER to another folder, which this user may make "
                "or write to, with a path of 90 bytes at most.",
            ) from error
        yield listener


if __name__ == "__main__":
    drop_package_folder(sys.path)
    prefer_installed_pyspark(sys.path)
    pin_zone()
    sys.exit(main())
