"""All errors of this package: what happened, why, what to do, and a code (docs/errors.md).

::

    ReliabilityError
    ├── Transient   a retry may succeed: Airflow retries the task
    └── Terminal    a retry cannot succeed: Airflow fails the task at once

A code is the name of its class: FileRefused has FILE_REFUSED. What an error is about is added where
it is known: where it is raised, or on its way to a person (`about`).
"""

from __future__ import annotations

import re
from typing import ClassVar, TypeVar

from reliability.core.remedy import Remedy

Error = TypeVar("Error", bound="ReliabilityError")

_ENDS = (".", "!", "?", "…")
_TYPES: dict[str, type[ReliabilityError]] = {}


class ReliabilityError(Exception):
    """Base of all errors of this package.

    :param what: what happened; by default what the error means
    :param remedy: what to do; by default the remedy of the class. A str is shown as it is
    :param topology: the topology that it is about; empty if it is not known
    :param txid: the txid that it is about; its text does not repeat it
    :param interval: the data interval of the txid, or of the emission

    >>> error = TxidHeld("it is held: a wrong file", txid=5).about(topology="shop")
    >>> print(error.about(txid=5, interval="1997-03"))
    [TXID_HELD] txid 5 (1997-03): it is held: a wrong file. What to do: when its cause is fixed, \
run `reliability release shop`, then `reliability resume-runs shop`.
    """

    code: ClassVar[str] = "RELIABILITY"
    remedy: Remedy = Remedy("")

    def __init_subclass__(cls, remedy: str = "") -> None:
        """Give the class its code and its remedy."""
        cls.code = re.sub(r"\B([A-Z])", r"_\1", cls.__name__).upper()
        _TYPES[cls.code] = cls
        if remedy:
            cls.remedy = Remedy(remedy)

    def __init__(
        self,
        what: str = "",
        *,
        remedy: str | Remedy | None = None,
        topology: str = "",
        txid: int | None = None,
        interval: str = "",
    ) -> None:
        self.what = what or (self.__doc__ or "").splitlines()[0]
        if remedy:
            self.remedy = Remedy.literal(remedy) if isinstance(remedy, str) else remedy
        self.topology, self.txid, self.interval = topology, txid, interval
        self.database = ""
        super().__init__(self.what)

    def about(
        self: Error, *, topology: str = "", txid: int | None = None, interval: str = ""
    ) -> Error:
        """Add what the error is about, unless it is known, and return the error."""
        self.topology = self.topology or topology
        self.txid = txid if self.txid is None else self.txid
        if self.txid == txid:
            self.interval = self.interval or interval
        return self

    def in_database(self: Error, database: str) -> Error:
        """Say in which database it happened, unless that is known, and return the error.

        :param database: its name; empty for the ledger's own, which a person takes for granted
        """
        if database and not self.database:
            self.database = database
            self.what = f"database {database}: {self.what}"
        return self

    @property
    def message(self) -> str:
        """Return what happened, and to which txid and interval."""
        interval = self.interval
        if self.txid is not None:
            return f"txid {self.txid}{f' ({interval})' if interval else ''}: {self.what}"
        return f"interval {interval}: {self.what}" if interval else self.what

    @property
    def what_to_do(self) -> str:
        """Return the remedy, with the names of what the error is about."""
        return self.remedy.render(topology=self.topology, txid=self.txid)

    def to_ledger(self) -> dict[str, str | None]:
        """Return its code, what happened, and its remedy unless that is the one of its class."""
        is_own = self.remedy is not type(self).remedy
        remedy = self.remedy.to_text() if is_own else None
        return {"reason_code": self.code, "reason": self.what, "remedy": remedy}

    @property
    def advice(self) -> str:
        """Return what happened and what to do, without the code."""
        return _with_remedy(self.message, self.what_to_do)

    def __str__(self) -> str:
        return f"[{self.code}] {self.advice}"


class Transient(ReliabilityError):
    """A retry of the same work may succeed."""


class Terminal(ReliabilityError):
    """A retry cannot succeed until a person acts."""


# --- definitions ---------------------------------------------------------------------------------


class InvalidDefinition(Terminal):
    """The definition of a topology, state or spout is not valid."""


class TopologyNotFound(
    Terminal, remedy="keep the Topology object and its process function in one importable module."
):
    """The module does not define the topology."""


class TopologyUnknown(Terminal, remedy="{status} lists the names, known from the first run."):
    """The ledger has no topology with this name."""


class StateDefinitionChanged(
    Terminal,
    remedy="restore the old definition; or run {alter}, which shows what the change takes, and "
    "makes it with --yes.",
):
    """A state of the topology no longer has the shape of its table."""


class AlterNotPossible(Terminal, remedy="restore the definition; {alter} says what is in the way."):
    """The tables of a state cannot be altered to its new definition; nothing was changed."""


class AdoptNotPossible(
    Terminal, remedy="change the table, or the definition of the state; nothing was changed."
):
    """A state cannot adopt the rows of a table."""


class EraseNotPossible(Terminal, remedy="nothing was changed."):
    """A person's rows cannot be erased exactly."""


class TargetTableTaken(
    Terminal,
    remedy="give the state another name or table; a table belongs to one state of one topology.",
):
    """The target table of a state is already in use."""


# --- settings and ledger -------------------------------------------------------------------------


class PasswordInDsn(
    Terminal,
    remedy="name a libpq service (service=reliability) and keep the password in a pass file, or "
    "let Airflow keep it: ledger_conn_id names a connection.",
):
    """RELIABILITY_DSN holds a password."""


class DsnUnreadable(
    Terminal,
    remedy="write a libpq string, such as service=reliability; a connection of Airflow is named by "
    "ledger_conn_id or database_conn_ids instead.",
):
    """RELIABILITY_DSN cannot be read."""


class LedgerUnavailable(
    Transient,
    remedy="check that Postgres is running (in a clone of this project: `make up`), and that "
    "its address is right, which `reliability doctor` shows on each host.",
):
    """The ledger's Postgres does not answer."""


class LedgerFull(
    LedgerUnavailable,
    remedy="give the server more disk or sessions; the task goes on by itself then.",
):
    """The ledger's Postgres lacks disk or sessions."""


#: How long tasks wait, without a retry, for credentials that the server accepts, or for a release
#: and a ledger that fit each other (S5).
PATIENCE_SECONDS = 600


class LedgerRefusedLogin(
    Terminal,
    remedy="check the user, the database and the password or token where the address comes from "
    "(`reliability doctor` says it on each host), and what renews them; then clear the task.",
):
    """The ledger's Postgres refused the login, or its credentials cannot be had.

    Terminal, but not at once: credentials are renewed, and each try asks for them again.
    """


class DatabaseConnectionMissing(
    LedgerRefusedLogin,
    remedy="add it (airflow connections add ID --conn-type reliability …), correct ledger_conn_id "
    "or database_conn_ids, or look at the secrets backend that has it; then clear the task.",
):
    """Airflow has no such connection, or no secrets backend that has it answers."""


class LedgerBusy(Transient, remedy="do nothing: nothing was changed, and the task is retried."):
    """A row of the ledger was locked for too long."""


class RightMissing(
    Terminal,
    remedy="grant the role what Postgres has denied; if the message has a GRANT, run it as the "
    "owner. Then {resume_runs}.",
):
    """The role that the ledger's DSN names lacks a right in the database."""


class LedgerNotMigrated(Terminal, remedy="run {migrate}."):
    """The ledger's schema is missing or older than this release."""

    def in_database(self, database: str) -> LedgerNotMigrated:
        if database:
            self.remedy = Remedy(f"run `reliability migrate --database {database}`.")
        return super().in_database(database)


class LedgerTooOld(LedgerNotMigrated):
    """The ledger's schema is older than this release.

    Terminal, but not at once: a deployment may be about to migrate it.
    """


class LedgerTooNew(Terminal, remedy="install the release that migrated it, or a newer one."):
    """The ledger was migrated by a newer release, with which this one cannot work.

    Terminal, but not at once: a deployment may be about to install it.
    """


SOON_MENDED = (LedgerRefusedLogin, LedgerTooOld, LedgerTooNew)
"""What rotated credentials or a deployment mends: a task waits for `PATIENCE_SECONDS` (S5)."""

NOT_ANSWERING = (LedgerUnavailable, LedgerBusy, *SOON_MENDED)
"""The ledger cannot be asked now: a task waits for it, without a retry (S3, S5)."""


class MigrationChanged(
    Terminal, remedy="restore the file; put changes into a new migration with the next number."
):
    """An applied migration differs from the file with the same number."""


class LedgerCorruption(Terminal, remedy="do not change the database; examine the row named above."):
    """The ledger is inconsistent; nothing was changed."""


class EncodingUnsupported(
    Terminal,
    remedy="create a database with ENCODING 'UTF8' TEMPLATE template0, and migrate that one.",
):
    """The database has an encoding in which texts sort differently than in Spark."""


class TextNotStorable(
    Terminal,
    remedy="use a database with ENCODING 'UTF8', which can store every character except NUL; "
    "remove NUL and invalid UTF-8 in the process function or at the source.",
):
    """A text cannot be stored in the database, or a stored value is not valid text."""


class UnexpectedAnswer(
    Transient,
    remedy="the message is Postgres's own. If a constraint, an index or a trigger of yours refuses "
    "the rows, change it, or change the process function.",
):
    """Postgres rejected a statement of this package."""


# --- emission ------------------------------------------------------------------------------------


class DataIntervalMissing(
    Terminal,
    remedy="use `airflow backfill create --dag-id {dag} --from-date DATE --to-date DATE`; or "
    "trigger a run with a logical date between two ticks of the schedule, or with `interval` in "
    "its conf, such as 2026-01-31.",
):
    """The run has no data interval, and the spout reads by interval."""


class LogicalDateTaken(
    Terminal,
    remedy="delete this run: while it exists, Airflow does not run the interval that starts at its "
    "logical date. Then use a backfill, or a logical date between two ticks of the schedule.",
):
    """The run has the logical date of a scheduled run, but is not that run."""


class IntervalOverlap(
    Terminal, remedy="clear or backfill the same interval, or run one that does not overlap it."
):
    """The run's data interval overlaps a different interval that was already emitted."""


class NothingToEmit(
    Transient,
    remedy="check that the files have arrived and that the pattern is right; if empty intervals "
    "are normal, set allow_empty=True in the spout; if a person has mistyped it, delete the run.",
):
    """The spout found nothing in the interval."""


class SourceNotReady(
    Transient, remedy="do nothing: it is checked every 30 s for 7 days, and this uses no retry."
):
    """The source is not ready to be read."""


class SourceUnreadable(
    Transient,
    remedy="deliver the complete file again, or let it be read.",
):
    """A source cannot be read."""


class TableUnreadable(SourceUnreadable, remedy="check the table and its database."):
    """The table of a TableSpout cannot be read or locked."""


class FileRefused(
    Terminal,
    remedy="deliver the file again, corrected, or leave it out with {exclude}; then run "
    "{resume_runs}.",
):
    """A file of the source cannot be processed as it is."""


class SourceIsATable(
    Terminal,
    remedy="read a table of Delta Lake with a DeltaSpout, one of Iceberg with an IcebergSpout. Of "
    "Hudi, let the job that writes it also write each batch of new rows as files that never "
    "change, outside the table's folder, and read these. Nothing was allocated.",
):
    """A pattern matches the files of a table whose log alone says which of them count."""


class SourceRewritten(
    Terminal,
    remedy="decide what becomes of such changes, by the spout's changes=; or let since= begin "
    "behind the version. Then {resume_runs}. Nothing was allocated.",
):
    """A table of Delta Lake or Iceberg has changed or removed rows, which its spout refuses."""


class LibraryMissing(Terminal, remedy="install the package where the tasks and Spark run."):
    """A package that a spout needs, and that others need not have, is not installed."""


class SourceChanged(
    Terminal,
    remedy="restore the original file or rows, and run {resume_runs}; if they were replaced on "
    "purpose, run {refreeze}, or a backfill of the interval with the conf refreeze.",
):
    """A file or a table has changed since its batch was emitted."""


class SourceMoved(Transient, remedy="do nothing: the next attempt reads the current source."):
    """The source of an opaque spout changed while an attempt read it."""


class SourceItemUnknown(
    Transient,
    remedy="do nothing: the tasks of the pipeline's DAG import it. If they fail with this error "
    "too, define the class in the pipeline's module again, with the same `kind`.",
):
    """The class of a batch's source items is not imported in this process."""


class TooManyBatches(
    Terminal,
    remedy="raise the most that the spout puts into a batch (max_files_per_batch, "
    "max_versions_per_batch, max_rows_per_batch), or [core] max_map_length in Airflow.",
):
    """The interval has more batches than Airflow can map."""


class TxidBlocked(
    Transient,
    remedy="find the cause with {show} and fix it; then {resume_runs} shows what to clear, and "
    "clears it with --yes. To go on without the txid for now: {park}; for good: {skip}.",
):
    """The run has given up an older txid of its own, and txids commit in order."""


class BlockedTooLong(Terminal, remedy=TxidBlocked.remedy.text):
    """The txid has waited for `blocked_timeout_seconds` behind a txid that no run is working on."""


# --- corrections ---------------------------------------------------------------------------------


class TxidHeld(Terminal, remedy="when its cause is fixed, run {release}, then {resume_runs}."):
    """The txid was rolled back and is held until a person releases it."""


class NothingSelected(Terminal, remedy="{txids} lists the txids with their intervals and files."):
    """No txid has the interval or the file that was asked for."""


class RollbackNotPossible(Terminal, remedy="roll back to a txid that every state can return to."):
    """A state does not keep the history that the rollback needs."""


class ParkNotPossible(
    Terminal,
    remedy="park or skip only uncommitted txids; {replay} processes a committed one again.",
):
    """The txid cannot be parked or skipped."""


class TxidSkipped(Terminal, remedy="if it is to be processed, run {unskip} first."):
    """The txid is skipped: nothing processes it."""


class TxidNotSkipped(Terminal, remedy="{status} lists the skipped txids."):
    """The txid is not skipped."""


class UnskipNotPossible(
    Terminal, remedy="deliver its files under other names: they get a txid of their own."
):
    """The txid has committed as empty, and a state could not replay it."""


class ExclusionNotPossible(Terminal, remedy="{show_json} lists the source items of a txid."):
    """A source item cannot be excluded or included."""


class RepairNotPossible(Terminal, remedy="{verify} names the rows and the records that are wrong."):
    """A table cannot be brought back to its contributions; nothing was changed."""


class NothingToReplay(
    Terminal, remedy="{status} shows what has committed; {resume_runs} processes what has not."
):
    """There is no committed txid to replay."""


class RefreezeNotPossible(
    Terminal, remedy="restore the original source, or deliver the difference as a new batch."
):
    """The batch of a txid cannot be refrozen."""


class DropNotPossible(Terminal, remedy="let its runs end, and drop what uses its tables first."):
    """The topology is in use and cannot be dropped."""


class ExplainNotPossible(Terminal, remedy="{topologies} shows the states and their keys."):
    """The state does not record where its rows come from."""


# --- requests and attempts -----------------------------------------------------------------------


class NoRequest(
    Terminal,
    remedy="clear the run from its task `emit` on; txids of the run that have committed are then "
    "replayed.",
):
    """The run has no request for this txid."""


class AttemptUnknown(Terminal, remedy="{show} lists a txid's attempts; the first is {txid}:0."):
    """The ledger does not have this attempt."""


class RequestClosed(
    Terminal,
    remedy="{resume_runs} shows what to clear, and clears it with --yes; or clear this task in "
    "Airflow.",
):
    """The run's request for this txid is closed."""


class RequestGivenUp(Transient, remedy="do nothing: the next try reopens the request."):
    """The run showed no activity for so long that its request was given up."""


class AttemptFenced(
    Transient,
    remedy="do nothing if another attempt took its place, which counts; if none did, {resume_runs} "
    "shows what to clear, and clears it with --yes.",
):
    """The attempt was ended; nothing that it still does can count."""


class PredecessorFailed(
    Transient, remedy="do nothing: the task begins the next attempt once the previous txid has one."
):
    """The batch starts where the previous txid's batch ended, and that attempt has failed."""


class ReplayNotPossible(
    Terminal,
    remedy="use a ContributionState for every table that replays must be able to correct, and keep "
    "its history long enough.",
):
    """A state of the topology does not keep the contribution that the replay would replace."""


class AlreadyAcked(Transient, remedy="do nothing: the rows of this copy were rolled back."):
    """This partition has already acked: the work of another copy of the task counts."""


class AttemptIncomplete(
    Transient, remedy="read the end of the driver's output; the next try begins a new attempt."
):
    """The driver ended before the attempt was complete."""


class RowsUnaccounted(
    Terminal,
    remedy="look for an inner join, a filter or a union in the process function: every row of the "
    "batch must reach every state exactly once. Where a row leaves on purpose, say so with "
    "reliability.drop() or quarantine(); where it becomes many, with fan_out().",
):
    """Emitted rows did not reach a state, or reached it more than once."""


class AuditFailed(
    Terminal,
    remedy="look at the rows that are named. Correct them at the source, or leave them out with "
    "reliability.quarantine(); if the audit is wrong, change it in the code, which may be done at "
    "any time. Then {resume_runs}.",
):
    """An audit of a state has found a violation, so the attempt does not commit."""


class FrameWithoutAccounting(
    Terminal,
    remedy="return frames that are made from the process function's arguments; write "
    "`reliability.aggregate()` instead of groupBy() or distinct(); before anything else that makes "
    "new rows, call `reliability.show_accounting()`, and keep both `_x` and `_n`.",
):
    """A frame of the process function no longer says which rows of the batch it has."""


class NotInProcessFunction(Terminal, remedy="call it in the process function, in its own thread."):
    """A helper was called where no driver notes what it sets aside."""


class CorrectionStale(
    Terminal,
    remedy="run {forget}, which takes the txid's corrections back, and correct what is in "
    "quarantine then.",
):
    """A row that a person has corrected is another one now, or gone."""


class CorrectionRefused(
    Terminal,
    remedy="export the rows again with `reliability quarantine export`, and edit only values; "
    "`reliability quarantine forget` takes corrections back that are recorded.",
):
    """An edited row does not fit what is in quarantine."""


class QuarantineFull(
    Terminal,
    remedy="look at the source: so many bad rows have one cause. Otherwise raise max_quarantined= "
    "or max_quarantined_share= of the topology.",
):
    """A batch puts more rows into the quarantine than its topology allows."""


class SchemaMismatch(
    Terminal,
    remedy="cast in the process function, or change the state's definition: freely before the "
    "topology's first commit, with {alter} after it.",
):
    """The columns of a frame do not fit its state."""


class EvaluationLost(
    Transient,
    remedy="do nothing: the next try evaluates them again; if it happens often, find out why "
    "executors are lost.",
):
    """An executor was lost, and with it rows that several states share.

    Spark would evaluate them again for the states that are not staged yet, and the result may
    differ.
    """


class SparkNotSupported(
    Terminal,
    remedy="install a Spark that docs/deployment/versions.md names, for driver and cluster, or a "
    "later release of this package.",
):
    """This Spark does not do what the accounting of rows relies on."""


class AirflowNotSupported(
    Terminal,
    remedy="install Airflow 3.0 to 3.3; docs/deployment/versions.md names those that are tried.",
):
    """This package does not run in this Airflow."""


class PythonNotSupported(
    Terminal, remedy="use Python 3.10 to 3.13; docs/deployment/versions.md names those tried."
):
    """This package does not run in this Python."""


class EvaluatedTwice(
    Terminal,
    remedy="evaluate it in the process function, before it sets rows aside: make all frames of "
    "`reliability.show_accounting(frame).localCheckpoint()`.",
):
    """Two states would read different results of one sub-plan."""


class ProcessFunctionFailed(Transient, remedy="read the whole error in the driver's output."):
    """The process function, or Spark while running it, raised an error."""


class RunUnsatisfied(
    Terminal,
    remedy="{show} says why; when that is fixed, {resume_runs} shows what to clear, and clears it "
    "with --yes.",
):
    """A txid that the run requested is not done."""


class NotInATestRun(
    Terminal,
    remedy="let the scheduler run the DAG, or use `reliability run`, which needs no Airflow.",
):
    """`airflow dags test` and `airflow tasks test` run one task after another, none beside it."""


class SuccessNotDone(
    Terminal,
    remedy="{resume_runs} shows what to clear, and clears it with --yes; if txids are not wanted, "
    "run {skip} for each.",
):
    """Airflow shows success for a run whose txids are not done.

    It was marked by hand, or a rollback of it was released.
    """


class SparkConnectionMissing(
    Terminal,
    remedy="create the connection, for example with `airflow connections add {name} --conn-type "
    "spark --conn-host 'local[*]'`.",
):
    """The Airflow connection to Spark does not exist."""


class DeployModeNotSupported(
    Terminal,
    remedy="set deploy mode client: spark.submit.deployMode, or the extra `deploy-mode` of the "
    "Airflow connection. Deploy mode cluster is for YARN and Kubernetes.",
):
    """Spark has no deploy mode cluster for Python on this cluster."""


class EngineUnavailable(
    Transient,
    remedy="run `reliability engine run` on this host, as the user that runs its tasks, or restart "
    "it after another release was installed; or choose engine='submit'.",
):
    """No warm engine answers on this host, or not one of this release."""


# --- checkpoint ----------------------------------------------------------------------------------


class CheckpointTakenOver(
    LedgerBusy, remedy="do nothing: that process continues, and the next try reads its result."
):
    """Another process has taken over the topology's checkpoint."""


class CheckpointStuck(
    Transient,
    remedy="repair the database that is named; every task and sweep of the topology tries again, "
    "and no txid commits until one succeeds. If the database can never commit it, go back to an "
    "earlier txid: {rollback}.",
):
    """A commit is decided and may be visible in some databases, but one cannot commit it."""


class CheckpointMismatch(
    Terminal,
    remedy="one of the databases was restored from a backup or replaced: restore all of them to "
    "the same commit number of the same history; nothing commits until they agree.",
):
    """A target database and the ledger disagree about which commits were applied."""


class ParticipantTaken(Terminal, remedy="rename the topology, or give the state another database."):
    """A target database cannot take part in the topology under this name."""


class NotTheCoordinator(
    Terminal, remedy="point RELIABILITY_DSN to the database with which the topology was first run."
):
    """This database only takes part in the topology; another database holds its ledger."""


class NotPossible(Exception):
    """Something that a person asks for is missing on this host.

    Unlike the errors of the protocol it has no code, because it is never stored in the ledger.

    :param remedy: what to do about it
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what, self.remedy = what, remedy
        super().__init__(_with_remedy(what, remedy))


def _with_remedy(what: str, remedy: str) -> str:
    if not remedy:
        return what
    return f"{what}{'' if what.endswith(_ENDS) else '.'} What to do: {remedy}"


def error_types() -> dict[str, type[ReliabilityError]]:
    """Return every error type by its code: the ledger stores codes, Airflow needs the type."""
    return {ReliabilityError.code: ReliabilityError, **_TYPES}


def remedy_from_ledger(code: str | None, remedy: str | None) -> Remedy | None:
    """Return what to do about an error that the ledger stores (`to_ledger`), None if unknown."""
    if remedy:
        return Remedy(remedy)
    error_type = error_types().get(code or "")
    return error_type.remedy if error_type and error_type.remedy.text else None


def error_from_ledger(code: str | None, what: str, remedy: str | None = None) -> ReliabilityError:
    """Rebuild an error from what the ledger stores (`to_ledger`).

    >>> error_from_ledger("ROLLED_BACK", "txids after 1 were rolled back").code
    'TXID_HELD'
    """
    types = error_types() | {"ROLLED_BACK": TxidHeld}  # an attempt that a rollback has ended
    error_type = types.get(code or "", AttemptIncomplete)
    return error_type(what, remedy=Remedy(remedy) if remedy else None)
