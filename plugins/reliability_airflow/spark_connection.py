"""The spark-submit that an Airflow connection leads to, of the type that Airflow's provider has.

What SparkSubmitOperator makes options of spark-submit of are properties here, which spark-submit
takes in their place.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from reliability.core.errors import SparkConnectionMissing
from reliability.deployment.settings import home, named_home
from reliability.spark.driver_environment import find_spark_submit
from reliability.spark.launch import SparkSubmit
from reliability_airflow.releases import AirflowNotFoundException, BaseHook

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

#: parameters of SparkSubmitOperator, as they may be in default_args -> Spark's properties
PROPERTIES = {
    "archives": "spark.archives",
    "deploy_mode": "spark.submit.deployMode",
    "driver_class_path": "spark.driver.extraClassPath",
    "driver_memory": "spark.driver.memory",
    "exclude_packages": "spark.jars.excludes",
    "executor_cores": "spark.executor.cores",
    "executor_memory": "spark.executor.memory",
    "files": "spark.files",
    "jars": "spark.jars",
    "keytab": "spark.kerberos.keytab",
    "num_executors": "spark.executor.instances",
    "packages": "spark.jars.packages",
    "principal": "spark.kerberos.principal",
    "py_files": "spark.submit.pyFiles",
    "repositories": "spark.jars.repositories",
    "total_executor_cores": "spark.cores.max",
    "yarn_queue": "spark.yarn.queue",
}
#: others of its parameters, which say who or what a job runs as, and are no properties
NOT_PROPERTIES = ("properties_file", "proxy_user")
#: extras of a connection -> Spark's properties
_EXTRAS = {
    "deploy-mode": "spark.submit.deployMode",
    "namespace": "spark.kubernetes.namespace",
    "principal": "spark.kerberos.principal",
    "queue": "spark.yarn.queue",
}
_KEYTAB = "spark.kerberos.keytab"
#: what a connection may name: who may edit it may not run any program
_PROGRAMS = ("spark-submit", "spark2-submit", "spark3-submit")
#: how masters begin where a driver may be on another host -> how it gets environment variables
_VARIABLES = {"yarn": "spark.yarn.appMasterEnv.", "k8s://": "spark.kubernetes.driverEnv."}


def connection_of(conn_id: str) -> Connection:
    """Return a connection of Airflow.

    :raises SparkConnectionMissing: there is none with this id
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise SparkConnectionMissing(
            f"Airflow has no connection {conn_id}",
            remedy=SparkConnectionMissing.remedy.about(name=conn_id),
        ) from error


@contextmanager
def spark_submit(
    conn_id: str, conf: Mapping[str, Any], env_vars: Mapping[str, str], code: Sequence[str]
) -> Iterator[SparkSubmit]:
    """Return the spark-submit of a connection; a keytab that it has is in a file for the block.

    :param conf: Spark's properties, which come before the connection's
    :param env_vars: environment variables of the driver; in deploy mode cluster they are
        properties, which others see
    :raises SparkConnectionMissing: there is no such connection
    """
    connection = connection_of(conn_id)
    submit = submit_of(connection, conf, env_vars, code)
    with NamedTemporaryFile(prefix="reliability-keytab-") as keytab:  # only this user may read it
        if encoded := connection.extra_dejson.get("keytab"):
            keytab.write(b64decode(encoded))
            keytab.flush()
            submit = replace(submit, conf={_KEYTAB: keytab.name, **submit.conf})
        yield submit


def check_connection(conn_id: str, conf: Mapping[str, Any]) -> None:
    """Raise unless spark-submit could be run by this connection.

    :raises SparkConnectionMissing: there is no such connection
    :raises DeployModeNotSupported: its cluster does not have its deploy mode
    """
    submit_of(connection_of(conn_id), conf, {}, ()).check()


def submit_of(
    connection: Connection,
    conf: Mapping[str, Any],
    env_vars: Mapping[str, str],
    code: Sequence[str],
) -> SparkSubmit:
    """Return the spark-submit of a connection, without its keytab.

    :raises ValueError: it names another program
    :raises FileNotFoundError: this host does not have the program
    """
    extra, master = connection.extra_dejson, _master(connection)
    properties = {_EXTRAS[name]: extra[name] for name in _EXTRAS if extra.get(name)}
    known, variables = {**properties, **conf}, {}
    prefix = next((_VARIABLES[begin] for begin in _VARIABLES if master.startswith(begin)), None)
    # in mode client, the driver is started with them
    if prefix and known.get(_EXTRAS["deploy-mode"]) == "cluster":
        # An image may have another one; where none is set, the working folder means nothing there.
        of_worker = {"RELIABILITY_HOME": str(home())} if named_home() else {}
        given = {**of_worker, **env_vars}
        variables = {f"{prefix}{name}": value for name, value in given.items()}
    return SparkSubmit(
        program=_program(connection.conn_id, extra.get("spark-binary") or _PROGRAMS[0]),
        master=master,
        conf={**variables, **known},
        variables=env_vars,
        code=code,
    )


def _master(connection: Connection) -> str:
    """Return the master: the host is the whole of it, or a URI has its scheme as the type."""
    # Without the provider of this type, Airflow's command line stores `generic` in its place.
    kind = "spark" if connection.conn_type == "generic" else connection.conn_type
    host = connection.host or ""
    is_whole = kind == "spark" and host and ("://" in host or not connection.port)
    master = host if is_whole else f"{kind}://{host}"
    return f"{master}:{connection.port}" if connection.port else master


def _program(conn_id: str, name: str) -> str:
    if name not in _PROGRAMS:
        allowed = ", ".join(_PROGRAMS)
        raise ValueError(f"the extra spark-binary of connection {conn_id} must be one of {allowed}")
    if (program := find_spark_submit(name=name)) is None:
        raise FileNotFoundError(f"{name} is neither on the PATH nor beside this Python")
    return program


def with_parent(conf: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """Add what names the task as the parent of the Spark job, if OpenLineage is configured so."""
    from airflow.configuration import conf as airflow
    from airflow.providers.common.compat.openlineage.utils import spark

    if not airflow.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False):
        return conf
    return spark.inject_parent_job_information_into_spark_properties(dict(conf), context)
