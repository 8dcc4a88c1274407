"""All errors of this package: what happened, why, what to do, and a code (docs/errors.md).

::

    ReliabilityError
    ├── Transient   a retry may succeed: Airflow retries the task
    └── Terminal    a retry cannot succeed: Airflow fails the task at once

A remedy names what to type. Its words TOPOLOGY, TXID, DAG and RUN are placeholders, which `fill_in`
replaces: where the error is raised, or where a task or a command reports it.
"""

from __future__ import annotations

import re
from typing import TypeVar

Error = TypeVar("Error", bound="ReliabilityError")

_ENDS = (".", "!", "?", "…")


class ReliabilityError(Exception):
    """Base of all errors of this package."""

    code = "RELIABILITY"
    remedy = ""

    def __init__(self, what: str = "", *, remedy: str = "") -> None:
        self.what = what or (self.__doc__ or "").splitlines()[0]
        self.remedy = remedy or self.remedy
        super().__init__(self.what)

    def name_interval(self, txid: int | None, interval: str) -> None:
        """Name the interval in the text, and the txid if there is one, unless they are there.

        >>> error = ReliabilityError("txid 5 is held")
        >>> error.name_interval(5, "1997-03")
        >>> error.what
        'txid 5 (1997-03) is held'
        """
        name = f"interval {interval}" if txid is None else f"txid {txid}"
        named = name if txid is None else f"{name} ({interval})"
        if named in self.what or (txid is None and interval in self.what):
            return
        if txid is not None and re.search(rf"\b{name}\b", self.what):
            self.what = re.sub(rf"\b{name}\b", named, self.what, count=1)
        else:
            self.what = f"{named}: {self.what}"
        self.args = (self.what,)

    def fill_in(self: Error, **names: object) -> Error:
        """Replace placeholders of the remedy by names, and return the error.

        >>> error = ReliabilityError("txid 7 is held", remedy="`reliability release TOPOLOGY`.")
        >>> print(error.fill_in(topology="shop"))
        [RELIABILITY] txid 7 is held. What to do: `reliability release shop`.
        """
        for placeholder, name in names.items():
            plain = str(name).replace("\\", r"\\")
            self.remedy = re.sub(rf"\b{placeholder.upper()}\b", plain, self.remedy)
        return self

    @property
    def advice(self) -> str:
        """Return what happened and what to do, without the code."""
        if not self.remedy:
            return self.what
        return f"{self.what}{'' if self.what.endswith(_ENDS) else '.'} What to do: {self.remedy}"

    def __str__(self) -> str:
        return f"[{self.code}] {self.advice}"


class Transient(ReliabilityError):
    """A retry of the same work may succeed."""

    code = "TRANSIENT"


class Terminal(ReliabilityError):
    """A retry cannot succeed until a person acts."""

    code = "TERMINAL"


# --- definitions ---------------------------------------------------------------------------------


class InvalidDefinition(Terminal):
    """The definition of a topology, state or spout is not valid."""

    code = "INVALID_DEFINITION"


class TopologyNotFound(Terminal):
    """The module does not define the topology."""

    code = "TOPOLOGY_NOT_FOUND"
    remedy = "keep the Topology object and its process function in one importable module."


class TopologyUnknown(Terminal):
    """The ledger has no topology with this name."""

    code = "TOPOLOGY_UNKNOWN"
    remedy = "`reliability status` lists the names; a topology is recorded at its first run."


class StateDefinitionChanged(Terminal):
    """A state of the topology no longer has the shape of its table."""

    code = "STATE_DEFINITION_CHANGED"
    remedy = (
        "restore the old definition; or run `reliability alter TOPOLOGY`, which shows what the "
        "change takes, and makes it with --yes."
    )


class AlterNotPossible(Terminal):
    """The tables of a state cannot be altered to its new definition; nothing was changed."""

    code = "ALTER_NOT_POSSIBLE"
    remedy = "restore the old definition; `reliability alter TOPOLOGY` says what is in the way."


class TargetTableTaken(Terminal):
    """The target table of a state is already in use."""

    code = "TARGET_TABLE_TAKEN"
    remedy = "give the state another name or table; a table belongs to one state of one topology."


# --- settings and ledger -------------------------------------------------------------------------


class PasswordInDsn(Terminal):
    """RELIABILITY_DSN holds a password."""

    code = "PASSWORD_IN_DSN"
    remedy = "name a libpq service (service=reliability) and keep the password in a pass file."


class DsnUnreadable(Terminal):
    """RELIABILITY_DSN cannot be read."""

    code = "DSN_UNREADABLE"
    remedy = "write a libpq connection string, for example service=reliability."


class LedgerUnavailable(Transient):
    """The ledger's Postgres does not answer."""

    code = "LEDGER_UNAVAILABLE"
    remedy = (
        "check that Postgres is running (in a clone of this project: `make up`), and that "
        "RELIABILITY_DSN and its service file point to it."
    )


#: How long tasks wait, without a retry, for credentials that the server accepts (S5).
LOGIN_PATIENCE_SECONDS = 600


class LedgerRefusedLogin(Terminal):
    """The ledger's Postgres refused the login.

    Terminal, but not at once: credentials are rewritten, and libpq reads them at each login.
    """

    code = "LEDGER_REFUSED_LOGIN"
    remedy = (
        "check the user, the database and the password or token in the libpq service file and pass "
        "file on this host, and what renews them; then clear the task."
    )


class LedgerBusy(Transient):
    """A row of the ledger was locked for too long."""

    code = "LEDGER_BUSY"
    remedy = "do nothing: nothing was changed, and the task is retried."


NOT_ANSWERING = (LedgerUnavailable, LedgerBusy, LedgerRefusedLogin)
"""The ledger cannot be asked now: a task waits for it, without a retry (S3, S5)."""


class RightMissing(Terminal):
    """The role that the ledger's DSN names lacks a right in the database."""

    code = "RIGHT_MISSING"
    remedy = (
        "grant the role what Postgres has denied; if the message has a GRANT, run it as the owner. "
        "Then `reliability resume-runs TOPOLOGY`."
    )


class LedgerNotMigrated(Terminal):
    """The ledger's schema is missing or older than this release."""

    code = "LEDGER_NOT_MIGRATED"
    remedy = "run `reliability migrate`."


class LedgerTooNew(Terminal):
    """The ledger was migrated by a newer release."""

    code = "LEDGER_TOO_NEW"
    remedy = "install the release that migrated it, or a newer one."


class MigrationChanged(Terminal):
    """An applied migration differs from the file with the same number."""

    code = "MIGRATION_CHANGED"
    remedy = "restore the file; put changes into a new migration with the next number."


class LedgerCorruption(Terminal):
    """The ledger is inconsistent; nothing was changed."""

    code = "LEDGER_CORRUPTION"
    remedy = "do not change the database; examine the row named above."


class EncodingUnsupported(Terminal):
    """The database has an encoding in which texts sort differently than in Spark."""

    code = "ENCODING_UNSUPPORTED"
    remedy = "create a database with ENCODING 'UTF8' TEMPLATE template0, and migrate that one."


class TextNotStorable(Terminal):
    """A text cannot be stored in the database, or a stored value is not valid text."""

    code = "TEXT_NOT_STORABLE"
    remedy = (
        "use a database with ENCODING 'UTF8', which can store every character except NUL; remove "
        "NUL and invalid UTF-8 in the process function or at the source."
    )


class UnexpectedAnswer(Transient):
    """Postgres rejected a statement of this package."""

    code = "UNEXPECTED_ANSWER"
    remedy = (
        "the message is Postgres's own. If a constraint, an index or a trigger of yours refuses "
        "the rows, change it, or change the process function."
    )


# --- emission ------------------------------------------------------------------------------------


class DataIntervalMissing(Terminal):
    """The run has no data interval, and the spout reads by interval."""

    code = "DATA_INTERVAL_MISSING"
    remedy = (
        "use `airflow backfill create --dag-id DAG --from-date DATE --to-date DATE`, or trigger a "
        "run with a logical date between two ticks of the schedule."
    )


class LogicalDateTaken(Terminal):
    """The run has the logical date of a scheduled run, but is not that run."""

    code = "LOGICAL_DATE_TAKEN"
    remedy = (
        "delete this run: while it exists, Airflow does not run the interval that starts at its "
        "logical date. Then use a backfill, or a logical date between two ticks of the schedule."
    )


class IntervalOverlap(Terminal):
    """The run's data interval overlaps a different interval that was already emitted."""

    code = "INTERVAL_OVERLAP"
    remedy = "clear or backfill the same interval, or run one that does not overlap it."


class NothingToEmit(Transient):
    """The spout found nothing in the interval."""

    code = "NOTHING_TO_EMIT"
    remedy = (
        "check that the files have arrived and that the pattern is right; if empty intervals are "
        "normal, set allow_empty=True in the spout."
    )


class SourceNotReady(Transient):
    """The source is not ready to be read."""

    code = "SOURCE_NOT_READY"
    remedy = "do nothing: it is checked every 30 s for 7 days, and this uses no retry."


class SourceUnreadable(Transient):
    """A source cannot be read."""

    code = "SOURCE_UNREADABLE"
    remedy = "deliver the complete file again, or let it be read; this run has allocated no txid."


class TableUnreadable(SourceUnreadable):
    """The table of a TableSpout cannot be read or locked."""

    code = "TABLE_UNREADABLE"
    remedy = "check the table and its database; this run has allocated no txid."


class FileRefused(Terminal):
    """A file of the source cannot be processed as it is."""

    code = "FILE_REFUSED"
    remedy = (
        "deliver the file again, corrected, or leave it out with `reliability exclude TOPOLOGY "
        "FILE --reason '…'`; then run `reliability resume-runs TOPOLOGY`."
    )


class SourceIsATable(Terminal):
    """A pattern matches the files of a table whose log alone says which of them count."""

    code = "SOURCE_IS_A_TABLE"
    remedy = (
        "let the job that writes the table also write each batch of new rows as files that never "
        "change, outside the table's folder, and read these. Nothing was allocated."
    )


class SourceChanged(Terminal):
    """A file or a table has changed since its batch was emitted."""

    code = "SOURCE_CHANGED"
    remedy = (
        "restore the original file or rows, and run `reliability resume-runs TOPOLOGY`; if they "
        "were replaced on purpose, run `reliability replay TOPOLOGY TXID --refreeze --reason '…'`, "
        "or a backfill of the interval with the conf refreeze."
    )


class SourceMoved(Transient):
    """The source of an opaque spout changed while an attempt read it."""

    code = "SOURCE_MOVED"
    remedy = "do nothing: the next attempt reads the current source."


class SourceItemUnknown(Transient):
    """The class of a batch's source items is not imported in this process."""

    code = "SOURCE_ITEM_UNKNOWN"
    remedy = (
        "do nothing: the tasks of the pipeline's DAG import it. If they fail with this error too, "
        "define the class in the pipeline's module again, with the same `kind`."
    )


class TooManyBatches(Terminal):
    """The interval has more batches than Airflow can map."""

    code = "TOO_MANY_BATCHES"
    remedy = "raise the spout's max_files_per_batch, or [core] max_map_length in Airflow."


class TxidBlocked(Transient):
    """The run has given up an older txid of its own, and txids commit in order."""

    code = "TXID_BLOCKED"
    remedy = (
        "find the cause with `reliability show TOPOLOGY TXID` and fix it; then `reliability "
        "resume-runs TOPOLOGY` shows what to clear, and clears it with --yes. To go on without the "
        "txid: `reliability park TOPOLOGY TXID --reason '…'`."
    )


class BlockedTooLong(Terminal):
    """The txid has waited for `blocked_timeout_seconds` behind a txid that no run is working on."""

    code = "BLOCKED_TOO_LONG"
    remedy = TxidBlocked.remedy


# --- corrections ---------------------------------------------------------------------------------


class TxidHeld(Terminal):
    """The txid was rolled back and is held until a person releases it."""

    code = "TXID_HELD"
    remedy = (
        "when its cause is fixed, run `reliability release TOPOLOGY`, then `reliability "
        "resume-runs TOPOLOGY`."
    )


class NothingSelected(Terminal):
    """No txid has the interval or the file that was asked for."""

    code = "NOTHING_SELECTED"
    remedy = "`reliability txids TOPOLOGY` lists the txids with their intervals and files."


class RollbackNotPossible(Terminal):
    """A state does not keep the history that the rollback needs."""

    code = "ROLLBACK_NOT_POSSIBLE"
    remedy = "roll back to a txid that every state of the topology can return to."


class ParkNotPossible(Terminal):
    """The txid cannot be parked or skipped."""

    code = "PARK_NOT_POSSIBLE"
    remedy = (
        "park or skip only uncommitted txids; `reliability replay TOPOLOGY TXID` processes a "
        "committed one again."
    )


class TxidSkipped(Terminal):
    """The txid is skipped: nothing processes it."""

    code = "TXID_SKIPPED"
    remedy = "if it is to be processed, run `reliability unskip TOPOLOGY TXID --reason '…'` first."


class TxidNotSkipped(Terminal):
    """The txid is not skipped."""

    code = "TXID_NOT_SKIPPED"
    remedy = "`reliability status` lists the skipped txids."


class UnskipNotPossible(Terminal):
    """The txid has committed as empty, and a state could not replay it."""

    code = "UNSKIP_NOT_POSSIBLE"
    remedy = "deliver its files under other names: they get a txid of their own."


class ExclusionNotPossible(Terminal):
    """A source item cannot be excluded or included."""

    code = "EXCLUSION_NOT_POSSIBLE"
    remedy = "`reliability show TOPOLOGY TXID --json` lists the source items of a txid."


class RepairNotPossible(Terminal):
    """A table cannot be brought back to its contributions; nothing was changed."""

    code = "REPAIR_NOT_POSSIBLE"
    remedy = "`reliability verify` names the rows and the records that are wrong."


class NothingToReplay(Terminal):
    """There is no committed txid to replay."""

    code = "NOTHING_TO_REPLAY"
    remedy = (
        "`reliability status` shows what has committed; `reliability resume-runs TOPOLOGY` "
        "processes what has not."
    )


class RefreezeNotPossible(Terminal):
    """The batch of a txid cannot be refrozen."""

    code = "REFREEZE_NOT_POSSIBLE"
    remedy = "restore the original source, or deliver the difference as a new batch."


class DropNotPossible(Terminal):
    """The topology is in use and cannot be dropped."""

    code = "DROP_NOT_POSSIBLE"
    remedy = "let its runs end, and drop what uses its tables first."


class ExplainNotPossible(Terminal):
    """The state does not record where its rows come from."""

    code = "EXPLAIN_NOT_POSSIBLE"
    remedy = "`reliability topologies TOPOLOGY` shows the states and their keys."


# --- requests and attempts -----------------------------------------------------------------------


class NoRequest(Terminal):
    """The run has no request for this txid."""

    code = "NO_REQUEST"
    remedy = (
        "clear the run from its task `emit` on; txids of the run that have committed are then "
        "replayed."
    )


class AttemptUnknown(Terminal):
    """The ledger does not have this attempt."""

    code = "ATTEMPT_UNKNOWN"
    remedy = "`reliability show TOPOLOGY TXID` lists the attempts of a txid; the first is TXID:0."


class RequestClosed(Terminal):
    """The run's request for this txid is closed."""

    code = "REQUEST_CLOSED"
    remedy = (
        "`reliability resume-runs TOPOLOGY` shows what to clear, and clears it with --yes; or "
        "clear this task in Airflow."
    )


class RequestGivenUp(Transient):
    """The run showed no activity for so long that its request was given up."""

    code = "REQUEST_GIVEN_UP"
    remedy = "do nothing: the next try reopens the request."


class AttemptFenced(Transient):
    """The attempt was ended; nothing that it still does can count."""

    code = "ATTEMPT_FENCED"
    remedy = "do nothing: the attempt that took its place counts."


class PredecessorFailed(Transient):
    """The batch starts where the previous txid's batch ended, and that attempt has failed."""

    code = "PREDECESSOR_FAILED"
    remedy = "do nothing: the task begins the next attempt once the previous txid has one."


class ReplayNotPossible(Terminal):
    """A state of the topology does not keep the contribution that the replay would replace."""

    code = "REPLAY_NOT_POSSIBLE"
    remedy = (
        "use a ContributionState for every table that replays must be able to correct, and keep "
        "its history long enough."
    )


class AlreadyAcked(Transient):
    """This partition has already acked: the work of another copy of the task counts."""

    code = "ALREADY_ACKED"
    remedy = "do nothing: the rows of this copy were rolled back."


class AttemptIncomplete(Transient):
    """The driver ended before the attempt was complete."""

    code = "ATTEMPT_INCOMPLETE"
    remedy = "read the end of the driver's output; the next try begins a new attempt."


class RowsUnaccounted(Terminal):
    """Emitted rows did not reach a state, or reached it more than once."""

    code = "ROWS_UNACCOUNTED"
    remedy = (
        "look for an inner join, a filter or a union in the process function: every row of the "
        "batch must reach every state exactly once. Where a row leaves on purpose, say so with "
        "reliability.drop() or quarantine(); where it becomes many, with fan_out()."
    )


class AuditFailed(Terminal):
    """An audit of a state has found a violation, so the attempt does not commit."""

    code = "AUDIT_FAILED"
    remedy = (
        "look at the rows that are named. Correct them at the source, or leave them out with "
        "reliability.quarantine(); if the audit is wrong, change it in the code, which may be done "
        "at any time. Then `reliability resume-runs TOPOLOGY`."
    )


class FrameWithoutAccounting(Terminal):
    """A frame of the process function no longer says which rows of the batch it has."""

    code = "FRAME_WITHOUT_ACCOUNTING"
    remedy = "keep both columns _x and _n, or neither."


class NotInProcessFunction(Terminal):
    """A helper was called where no driver notes what it sets aside."""

    code = "NOT_IN_PROCESS_FUNCTION"
    remedy = "call it in the process function, in the thread that runs it."


class CorrectionStale(Terminal):
    """A row that a person has corrected is another one now, or gone."""

    code = "CORRECTION_STALE"
    remedy = (
        "run `reliability quarantine forget TOPOLOGY TXID`, which takes the txid's corrections "
        "back, and correct what is in quarantine then."
    )


class CorrectionRefused(Terminal):
    """An edited row does not fit what is in quarantine."""

    code = "CORRECTION_REFUSED"
    remedy = (
        "export the rows again with `reliability quarantine export`, and edit only values; "
        "`reliability quarantine forget` takes corrections back that are recorded."
    )


class QuarantineFull(Terminal):
    """A batch puts more rows into the quarantine than its topology allows."""

    code = "QUARANTINE_FULL"
    remedy = (
        "look at the source: so many bad rows have one cause. Otherwise set max_quarantined= of "
        "the topology to more."
    )


class SchemaMismatch(Terminal):
    """The columns of a frame do not fit its state."""

    code = "SCHEMA_MISMATCH"
    remedy = (
        "cast in the process function, or change the state's definition: freely before the "
        "topology's first commit, with `reliability alter TOPOLOGY` after it."
    )


class EvaluationLost(Transient):
    """An executor was lost, and with it rows that several states share.

    Spark would evaluate them again for the states that are not staged yet, and the result may
    differ.
    """

    code = "EVALUATION_LOST"
    remedy = (
        "do nothing: the next try evaluates them again; if it happens often, find out why "
        "executors are lost."
    )


class EvaluatedTwice(Terminal):
    """Two states would read different results of one sub-plan."""

    code = "EVALUATED_TWICE"
    remedy = (
        "evaluate it in the process function, before it sets rows aside: make all frames of "
        "`reliability.show_accounting(frame).localCheckpoint()`."
    )


class ProcessFunctionFailed(Transient):
    """The process function, or Spark while running it, raised an error."""

    code = "PROCESS_FUNCTION_FAILED"
    remedy = "read the whole error in the driver's output."


class RunUnsatisfied(Terminal):
    """A txid that the run requested is not done."""

    code = "RUN_UNSATISFIED"
    remedy = (
        "`reliability show TOPOLOGY TXID` says why; when that is fixed, `reliability resume-runs "
        "TOPOLOGY` shows what to clear, and clears it with --yes."
    )


class SuccessNotDone(Terminal):
    """Airflow shows success for a run whose txids are not done: marked by hand, or rolled back."""

    code = "SUCCESS_NOT_DONE"
    remedy = (
        "`reliability resume-runs TOPOLOGY` shows what to clear, and clears it with --yes; if "
        "txids are not wanted, run `reliability skip TOPOLOGY TXID --reason '…'` for each."
    )


class SparkConnectionMissing(Terminal):
    """The Airflow connection to Spark does not exist."""

    code = "SPARK_CONNECTION_MISSING"
    remedy = (
        "create the connection, for example with `airflow connections add NAME --conn-type spark "
        "--conn-host 'local[*]'`; without it, the provider would submit to YARN."
    )


class EngineUnavailable(Transient):
    """No warm engine answers on this host, or not one of this release."""

    code = "ENGINE_UNAVAILABLE"
    remedy = (
        "run `reliability engine run` on this host, as the user that runs its tasks, or restart it "
        "after another release was installed; or choose engine='submit'."
    )


# --- checkpoint ----------------------------------------------------------------------------------


class CheckpointTakenOver(LedgerBusy):
    """Another process has taken over the topology's checkpoint."""

    code = "CHECKPOINT_TAKEN_OVER"
    remedy = "do nothing: that process continues, and the next try reads its result."


class CheckpointStuck(Transient):
    """A commit is decided and may be visible in some databases, but one cannot commit it."""

    code = "CHECKPOINT_STUCK"
    remedy = (
        "repair the database that is named; every task and sweep of the topology tries again, and "
        "no txid commits until one succeeds. If the database can never commit it, go back to an "
        "earlier txid: `reliability rollback TOPOLOGY EARLIER --reason '…'`."
    )


class CheckpointMismatch(Terminal):
    """A target database and the ledger disagree about which commits were applied."""

    code = "CHECKPOINT_MISMATCH"
    remedy = (
        "one of the databases was restored from a backup or replaced: restore all of them to the "
        "same commit number; nothing commits until they agree."
    )


class ParticipantTaken(Terminal):
    """A target database cannot take part in the topology under this name."""

    code = "PARTICIPANT_TAKEN"
    remedy = "give the topology another name, or the state another database."


class NotTheCoordinator(Terminal):
    """This database only takes part in the topology; another database holds its ledger."""

    code = "NOT_THE_COORDINATOR"
    remedy = "point RELIABILITY_DSN to the database with which the topology was first run."


def error_types() -> dict[str, type[ReliabilityError]]:
    """Return every error type by its code: the ledger stores codes, Airflow needs the type."""
    found: dict[str, type[ReliabilityError]] = {}
    pending: list[type[ReliabilityError]] = [ReliabilityError]
    while pending:
        error_type = pending.pop()
        found[error_type.code] = error_type
        pending.extend(error_type.__subclasses__())
    return found


def error_from_ledger(code: str | None, what: str) -> ReliabilityError:
    """Rebuild an error from the code and the text that the ledger stores."""
    error_type = error_types().get(code or "", AttemptIncomplete)
    return error_type(what)
