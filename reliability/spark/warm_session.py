"""A step's session in the warm engine of its host (`warm_engine`), instead of a JVM of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from reliability.core.attempt import Grant
from reliability.deployment.address import ADDRESSES
from reliability.spark.engine_socket import STEP, ask, check_versions, connect

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@contextmanager
def warm_session(grant: Grant) -> Iterator[SparkSession]:
    """Attach to the engine; when the block or this process ends, the engine ends the session.

    :raises EngineUnavailable: no engine answers, or one of another release
    """
    with connect() as connection:
        access = ask(connection, STEP)
        check_versions(access["versions"])
        gateway = _gateway(access)
        context = _context(gateway, access["pool"], grant)
        try:
            yield _session(context, gateway.entry_point)
        finally:
            shutil.rmtree(context._temp_dir, ignore_errors=True)


def _gateway(access: Mapping[str, Any]) -> JavaGateway:
    """Connect to the gateway of this step; no child process inherits the secret."""
    from pyspark.java_gateway import launch_gateway

    port, secret = str(access["port"]), access["secret"]
    given = {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(given)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in given:
            del os.environ[name]


def _context(gateway: JavaGateway, pool: str, grant: Grant) -> SparkContext:
    """Return this process's handle of the engine's SparkContext, which all steps share."""
    from pyspark import SparkConf, SparkContext

    jvm, session = gateway.jvm, gateway.entry_point
    java_context = jvm.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    is_local = conf.get("spark.master", "").startswith("local")
    if is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    # It would cancel the jobs of all steps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    setattr(context, "stop", lambda: None)  # noqa: B010  # a process function may call it
    if is_local:
        context.environment.update(_environment_of_workers())
    context.setJobGroup(session.sessionUUID(), str(grant))
    context.setLocalProperty("spark.scheduler.pool", pool)
    return context


def _environment_of_workers() -> dict[str, str]:
    """Return what the Python workers get of this process's environment, instead of the engine's.

    Spark keeps a daemon for each environment, so it holds nothing that differs from step to step.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PYTHONPATH", "RELIABILITY_", "PG"))
        and name not in ("PGPASSWORD", ADDRESSES)
    }


def _session(context: SparkContext, java_session: Any) -> SparkSession:
    """Return the session; make it this process's default, but not the JVM's, which all share."""
    from pyspark.sql import SparkSession

    SparkSession._instantiatedSession = SimpleNamespace(_sc=context)  # type: ignore[assignment]
    session = SparkSession(context, java_session)
    SparkSession._instantiatedSession = SparkSession._activeSession = session
    SparkSession._get_j_spark_session_class(context._jvm).setActiveSession(java_session)
    return session
