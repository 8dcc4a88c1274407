"""What this project asks of Spark's JVM, where pyspark has no API: above all, of analyzed plans.

No other module calls the JVM, except the two that lend and borrow one (`warm_engine`,
`warm_session`). `supported.check_spark` shows at the start of a driver that Spark still does what
is relied on here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PROJECT = "sql.catalyst.plans.logical.Project"
_ALIAS = re.compile(r" AS .*#(\d+)[^#]*\Z", re.DOTALL)
_ATTRIBUTE = re.compile(r"(.*)#(\d+)[^#]*", re.DOTALL)  # amount#12, id#7L
_SEPARATOR = f"\0{uuid4()}\0"  # no name and no literal has it


# --- columns and expressions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of a plan.

    :param name: of a column that a Project makes, its whole expression
    :param id: Spark's, by which columns of one name are told apart
    """

    name: str
    id: int
    _among: Any
    _place: int

    @property
    def java(self) -> Any:
        return self._among.apply(self._place)

    def column(self, spark: SparkSession) -> Column:
        """Return it as a column of a frame: it is found by its id, not by its name."""
        from pyspark.sql.classic.column import Column as ClassicColumn

        return ClassicColumn(_of_spark(spark, "sql.classic.ExpressionUtils").column(self.java))


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of a plan."""

    java: Any

    @property
    def class_name(self) -> str:
        """Return the name of its class, which is the same whatever a query calls it."""
        return str(self.java.getClass().getSimpleName())

    @property
    def type(self) -> str:
        return str(self.java.dataType().sql())

    @property
    def deterministic(self) -> bool:
        return bool(self.java.deterministic())

    @property
    def children(self) -> list[Expression]:
        return [Expression(each) for each in _sequence(self.java.children())]

    @property
    def references(self) -> set[int]:
        """Return the ids of the columns that it reads."""
        return {int(each.exprId().id()) for each in _sequence(self.java.references().toSeq())}

    @property
    def aggregate_function(self) -> Expression:
        """Return the function that an AggregateExpression calls."""
        return Expression(self.java.aggregateFunction())

    @property
    def eval_mode(self) -> str:
        """Return what a Sum or an Average does if it is too large: `ANSI` is an error."""
        java = self.java.evalContext() if self.class_name == "Sum" else self.java
        return str(java.evalMode().toString())

    @property
    def result_id(self) -> int:
        """Return the id of a call that has one."""
        return int(self.java.resultId().id())

    @property
    def seed(self) -> int:
        return int(self.java.seedExpression().eval(None) or 0)  # of rand(NULL) it is NULL

    def nodes(self) -> Iterator[Expression]:
        """Return it and all expressions inside it."""
        yield self
        for child in self.children:
            yield from child.nodes()


# --- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """An analyzed logical plan of a session; what Spark has said of it is not asked again."""

    java: Any
    spark: SparkSession

    @classmethod
    def of(cls, frame: DataFrame) -> Plan:
        """Return the plan of a frame."""
        return cls(frame._jdf.queryExecution().analyzed(), frame.sparkSession)

    def frame(self) -> DataFrame:
        """Return the frame of this plan."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        return ClassicDataFrame(self._dataset(), self.spark)

    @cached_property
    def name(self) -> str:
        """Return the name of its topmost operator."""
        return str(self.java.nodeName())

    @cached_property
    def children(self) -> list[Plan]:
        """Return the plans below it, without those of subqueries."""
        return [Plan(child, self.spark) for child in _sequence(self.java.children())]

    @cached_property
    def parts(self) -> list[Plan]:
        """Return its children and its subqueries."""
        subqueries = _sequence(self.java.subqueries())
        return [*self.children, *(Plan(each, self.spark) for each in subqueries)]

    @property
    def is_leaf(self) -> bool:
        return not self.children

    @property
    def leaves(self) -> list[Plan]:
        return [Plan(leaf, self.spark) for leaf in _sequence(self.java.collectLeaves())]

    @cached_property
    def output(self) -> list[Attribute]:
        """Return the columns that it shows."""
        return _attributes(self.java.output())

    def ids(self, *names: str) -> set[int]:
        """Return the ids of the columns that it shows, or of those with these names."""
        return {column.id for column in self.output if not names or column.name in names}

    @property
    def reachable(self) -> list[Attribute]:
        """Return the columns that it hides, and that are found if somebody asks for them."""
        return _attributes(self.java.metadataOutput())

    @property
    def hidden(self) -> list[Attribute] | None:
        """Return the columns that a Project hides; None if it hides those of its child."""
        tag = self.java.getTagValue(_hidden_output_tag(_jvm(self.spark)))
        return _attributes(tag.get()) if tag.isDefined() else None

    @property
    def made(self) -> list[Attribute]:
        """Return the columns of a Project, with their expressions."""
        return _attributes(self.java.projectList())

    @cached_property
    def expressions(self) -> list[Expression]:
        """Return the expressions of its topmost operator."""
        return [Expression(each) for each in _sequence(self.java.expressions())]

    @cached_property
    def deterministic(self) -> bool:
        """Say whether all expressions of its topmost operator are, for Spark."""
        # of the whole plan, in one call
        return bool(self.java.deterministic()) or all(
            each.deterministic for each in self.expressions
        )

    @property
    def calls_python_aggregates(self) -> bool:
        """Say whether its topmost operator calls a Python function on the rows of a group."""
        patterns = _of_spark(self.spark, "sql.catalyst.trees.TreePattern")
        return bool(self.java.containsPattern(patterns.PYTHON_UDF())) and any(
            each.class_name == "PythonUDAF" for own in self.expressions for each in own.nodes()
        )

    @property
    def reads(self) -> set[int]:
        """Return the ids of the columns that its topmost operator reads."""
        return {int(each.exprId().id()) for each in _sequence(self.java.references().toSeq())}

    @property
    def has_with(self) -> bool:
        """Say whether a WITH is in it, or in a subquery."""
        patterns = _of_spark(self.spark, "sql.catalyst.trees.TreePattern")
        return bool(self.java.containsPattern(patterns.CTE()))

    @property
    def relation(self) -> int:
        """Return the number of a relation of a WITH: of its definition, or of a reference to it."""
        java = self.java
        return int(java.id() if self.name == "CTERelationDef" else java.cteId())

    @property
    def grouping(self) -> list[Expression]:
        """Return what an Aggregate groups by."""
        return [Expression(each) for each in _sequence(self.java.groupingExpressions())]

    @property
    def types(self) -> str:
        """Return the types of all of its columns, as text."""
        return str(self.java.schema().sql())

    @cached_property
    def text(self) -> str:
        """Return the text of the expressions of its topmost operator, which may be cut."""
        return str(self.java.expressions().mkString())

    def described(self, fields: int) -> str:
        """Return its topmost operator for a person, with at most so many fields."""
        return str(self.java.simpleString(fields))

    @cached_property
    def identity(self) -> str:
        """Return a key that is the same for equal plans; it ignores expression ids, not seeds."""
        canonical = self.java.canonicalized()
        return f"{canonical.hashCode()}:{canonical.toString()}"

    def nodes(self) -> Iterator[Plan]:
        """Return it and all plans inside it."""
        yield self
        for part in self.parts:
            yield from part.nodes()

    def numbered(self) -> Plan:
        """Return it as Spark compares it with what is cached.

        The relations of all WITHs in it are numbered from 0, so their numbers differ with what
        else is in a plan.
        """
        numbering = _of_spark(self.spark, "sql.catalyst.normalizer.NormalizeCTEIds")
        return self._with(numbering.apply(self.java))

    def makers_of(self, ids: set[int]) -> list[Expression]:
        """Return the expressions of its topmost operator that make columns with these ids."""
        expressions = self.java.expressions()
        aliases = ((place, _ALIAS.search(text)) for place, text in enumerate(_texts(expressions)))
        return [
            Expression(expressions.apply(place))
            for place, alias in aliases
            if alias and int(alias[1]) in ids
        ]

    # --- changed plans ---------------------------------------------------------------------------

    def over(self, children: Iterable[Plan]) -> Plan:
        """Return its topmost operator over other children."""
        return self._with(self.java.withNewChildren(self._scala(each.java for each in children)))

    def with_metadata(self) -> Plan:
        """Return a source that shows what it hides."""
        return self._with(self.java.withMetadataColumns())

    def select(self, columns: Iterable[Attribute]) -> Plan:
        """Return a Project over it."""
        return self._select(self._scala(each.java for each in columns))

    def select_as(self, other: Plan) -> Plan:
        """Return a Project over it that shows the columns of another plan."""
        return self._select(other.java.output())

    def without(self, columns: Iterable[Attribute]) -> Plan:
        """Return a Project over it that shows all columns but these."""
        return self._select(self.java.output().diff(self._scala(each.java for each in columns)))

    def hiding(self, columns: Sequence[Attribute]) -> DataFrame:
        """Return a frame of it without these columns, from whose results they can be reached."""
        project = self.without(columns)
        project.hide(columns)
        return project.frame()

    def hide(self, columns: Iterable[Attribute]) -> None:
        """Let a Project hide columns of its child: they are found if asked for, but not shown.

        Spark does the same with the second key of a join by a column's name.
        """
        tag = _hidden_output_tag(_jvm(self.spark))
        self.java.setTagValue(tag, self._scala(each.java for each in columns))

    def tagged_as(self, other: Plan) -> Plan:
        """Return it with Spark's notes about another plan, such as what it hides."""
        self.java.copyTagsFrom(other.java)
        return self

    # --- one evaluation --------------------------------------------------------------------------

    @property
    def is_cached(self) -> bool:
        """Say whether somebody has cached it."""
        session = self.spark._jsparkSession
        return bool(_cache(self.spark).lookupCachedData(session, self.java).isDefined())

    @property
    def may_be_cached(self) -> bool:
        """Say whether anything is cached at all."""
        return not _cache(self.spark).isEmpty()

    @property
    def is_loaded(self) -> bool:
        """Say whether a job has computed it since it was cached."""
        return bool(self._cached().isCachedColumnBuffersLoaded())

    def reads_result_of(self, other: Plan) -> bool:
        """Say whether what was computed of it, since it was cached, has read another's result."""
        result = other.is_cached and other.is_loaded
        return result and f"[{other._rows().id()}]" in self._rows().toDebugString()

    def cache_again(self) -> None:
        """Let Spark plan its cached query with what has been evaluated since it was cached."""
        dataset, level = self._dataset(), self._cached().storageLevel()
        dataset.unpersist(False)
        dataset.persist(level)

    def evaluate(self) -> bool:
        """Compute it, keep the result on the executors, and cut its lineage.

        If an executor is lost meanwhile, Spark computes its part again: nothing has read it yet.

        :returns: False if it was computed before, and keeps its lineage
        """
        if not self.is_cached:
            # Two tasks may compute one partition, by speculation or if a stage runs again. If
            # results are serialized, Spark keeps only one of them.
            levels = _of_spark(self.spark, "storage.StorageLevel")
            self._dataset().persist(levels.MEMORY_AND_DISK_SER())
        rows = self._rows()
        rows.localCheckpoint()
        rows.count()
        return bool(rows.isCheckpointed())

    @property
    def has_outer_references(self) -> bool:
        """Say whether it reads a column of the query around it."""
        queries = _of_spark(self.spark, "sql.catalyst.expressions.SubExprUtils")
        return bool(queries.hasOuterReferences(self.java))

    @property
    def has_clock(self) -> bool:
        """Say whether anything in it asks for the time."""
        plain, timed = self._without_clock()
        return not plain.fastEquals(timed)

    @property
    def reads_clock(self) -> bool:
        """Say whether an expression of its topmost operator asks for the time.

        Spark calls it deterministic within one query, but several queries run here.
        """
        plain, timed = self._without_clock()
        return not plain.expressions().equals(timed.expressions())

    def _without_clock(self) -> tuple[Any, Any]:
        """Return it, and what Spark's optimizer makes of it, with the time instead of clocks."""
        replaced, computed, special = (
            _of_spark(self.spark, f"sql.catalyst.optimizer.{rule}")
            for rule in ("ReplaceExpressions", "ComputeCurrentTime", "SpecialDatetimeValues")
        )
        plain = replaced.apply(self.java)
        return plain, special.apply(computed.apply(plain))

    def _cached(self) -> Any:
        found = self._dataset().queryExecution().withCachedData()
        while found.nodeName() == "ResolvedHint":  # Spark puts a plan's hints above its result
            found = found.child()
        return found.cacheBuilder()

    def _rows(self) -> Any:
        return self._cached().cachedColumnBuffers()

    def _dataset(self) -> Any:
        return _of_spark(self.spark, "sql.classic.Dataset").ofRows(
            self.spark._jsparkSession, self.java
        )

    def _select(self, columns: Any) -> Plan:
        return self._with(_of_spark(self.spark, _PROJECT)(columns, self.java))

    def _with(self, java: Any) -> Plan:
        return Plan(java, self.spark)

    def _scala(self, items: Iterable[Any]) -> Any:
        """Return a Scala sequence of items."""
        jvm = _jvm(self.spark)
        collected = _class(jvm, "java.util.ArrayList")()
        for item in items:
            collected.add(item)
        return _as_scala(jvm)(collected).toSeq()


# --- frames --------------------------------------------------------------------------------------


def always(frame: DataFrame, column: str, literal: str) -> bool:
    """Say whether Spark's optimizer finds that a column has this one value in every row."""
    plan = frame.select(column)._jdf.queryExecution().optimizedPlan()
    return plan.nodeName() == "Project" and bool(
        re.fullmatch(rf"{literal} AS {column}#\d+L?", plan.expressions().mkString())
    )


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the frame in this session: what is made of it from now on follows its settings."""
    if frame.sparkSession is spark:
        return frame
    return Plan(Plan.of(frame).java, spark).frame()


def has_file_system(spark: SparkSession, scheme: str) -> bool:
    """Say whether Hadoop, in Spark's JVM, has a file system of this scheme, with its jars."""
    from py4j.protocol import Py4JJavaError

    hadoop = _class(_jvm(spark), "org.apache.hadoop.fs.FileSystem")
    try:
        hadoop.getFileSystemClass(scheme, spark._jsparkSession.sessionState().newHadoopConf())
    except Py4JJavaError:
        return False
    return True


def hide(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return a frame without these columns, from whose results they can be reached."""
    plan = Plan.of(frame)
    return plan.hiding([column for column in plan.output if column.name in names])


# --- sessions ------------------------------------------------------------------------------------


def has_jvm(spark: SparkSession) -> bool:
    """Say whether a session has a JVM, which one of Spark Connect has not."""
    return hasattr(spark, "_jsparkSession")


def is_gone(error: Exception) -> bool:
    """Say whether an error means that the JVM has ended, not a service that the user calls."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(error, Py4JNetworkError):
        return True
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    module = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return isinstance(error, ConnectionError) and module.startswith("py4j")


def stop_context(spark: SparkSession) -> None:
    """Stop the application at the end of this process; its JVM may be gone.

    SparkSession.stop() waits up to 1.5 seconds for a thread of this process, which ends with it.
    """
    from py4j.protocol import Py4JError

    with suppress(Py4JError):
        spark.sparkContext._jsc.stop()


def process_id(spark: SparkSession) -> int:
    """Return the process id of the driver's JVM."""
    return int(_jvm(spark).java.lang.ProcessHandle.current().pid())


def session_tag(spark: SparkSession) -> str:
    """Return the tag that Spark gives to the jobs of a session's queries."""
    return str(spark._jsparkSession.sessionJobTag())


def jobs_with_tag(spark: SparkSession, tag: str) -> list[int]:
    """Return the ids of jobs."""
    return [*spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag)]


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return what is set in a session, by name."""
    text = spark._jsparkSession.conf().getAll().mkString("\0")
    return dict(setting.split(" -> ", 1) for setting in text.split("\0") if " -> " in setting)


def settings_of_new_sessions(spark: SparkSession) -> dict[str, str]:
    """Return what is set in the application's new sessions (`newSession()`), by name."""
    texts = (conf.toDebugString() for conf in _confs_of_new_sessions(spark))
    settings = (line.partition("=") for text in texts for line in text.splitlines())
    return {name: value for name, _, value in settings}


def set_for_new_sessions(
    spark: SparkSession, settings: Mapping[str, str], unset: Iterable[str]
) -> None:
    """Change the settings with which the application's new sessions begin."""
    confs = _confs_of_new_sessions(spark)
    for name in unset:
        for conf in confs:
            conf.remove(name)
    for name, value in settings.items():
        confs[-1].set(name, value)


def _confs_of_new_sessions(spark: SparkSession) -> tuple[Any, Any]:
    """Return a copy that was made with the first session, and the application's own settings.

    Spark reads both; the second come first.
    """
    session = spark._jsparkSession
    return session.sharedState().conf(), session.sparkContext().conf()


# --- Scala ---------------------------------------------------------------------------------------


def _cache(spark: SparkSession) -> Any:
    return spark._jsparkSession.sharedState().cacheManager()


def _of_spark(spark: SparkSession, name: str) -> Any:
    return _class(_jvm(spark), f"org.apache.spark.{name}")


def _jvm(spark: SparkSession) -> Any:
    jvm = spark._jvm
    assert jvm is not None
    return jvm


@cache
def _class(jvm: Any, name: str) -> Any:
    """Return a class by its full name, or what belongs to a Scala object of this name.

    By its parts it would take a call of the JVM for each, which looks through all of its jars.
    """
    return getattr(jvm, name)


@cache
def _hidden_output_tag(jvm: Any) -> Any:
    return _class(jvm, f"org.apache.spark.{_PROJECT}").hiddenOutputTag()


@cache
def _as_scala(jvm: Any) -> Any:
    return _class(jvm, "scala.jdk.javaapi.CollectionConverters").asScala


def _sequence(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]


def _attributes(columns: Any) -> list[Attribute]:
    """Return the columns of a Scala sequence; their names and ids are read in one call."""
    return [Attribute(*_read(text), columns, place) for place, text in enumerate(_texts(columns))]


def _read(attribute: str) -> tuple[str, int]:
    parts = _ATTRIBUTE.fullmatch(attribute)
    assert parts is not None, attribute
    return parts[1], int(parts[2])


def _texts(expressions: Any) -> list[str]:
    text: str = expressions.mkString(_SEPARATOR)
    # of no expression it is empty, and of an empty literal
    return text.split(_SEPARATOR) if text else [""] * expressions.size()
