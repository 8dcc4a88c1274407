"""Every error a person can meet: what happened, why, what to do, and a code (docs/errors.md).

::

    ReliabilityError
    ├── Transient   a later try of the same work may succeed: Airflow retries
    └── Terminal    trying again changes nothing: Airflow fails the task at once
"""

from __future__ import annotations


class ReliabilityError(Exception):
    """Base of all errors of this package."""

    code = "RELIABILITY"
    remedy = ""

    def __init__(self, what: str = "", *, remedy: str = "") -> None:
        self.what = what or (self.__doc__ or "").splitlines()[0]
        self.remedy = remedy or self.remedy
        super().__init__(self.what)

    def __str__(self) -> str:
        advice = f" What to do: {self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.what}{advice}"


class Transient(ReliabilityError):
    """A later try of the same work may succeed."""

    code = "TRANSIENT"


class Terminal(ReliabilityError):
    """Trying again changes nothing until a person acts."""

    code = "TERMINAL"


# --- definitions ---------------------------------------------------------------------------------


class InvalidDefinition(Terminal):
    """The definition of a topology, state or spout does not hold together."""

    code = "INVALID_DEFINITION"


class TopologyNotFound(Terminal):
    """The module does not hold the topology."""

    code = "TOPOLOGY_NOT_FOUND"
    remedy = "keep the Topology object and its process function in one importable module."


class TopologyUnknown(Terminal):
    """The ledger has no topology of that name."""

    code = "TOPOLOGY_UNKNOWN"
    remedy = "look at `reliability status` for the names; a topology is known from its first run."


class StateDefinitionChanged(Terminal):
    """A state of the topology no longer has the shape of its table."""

    code = "STATE_DEFINITION_CHANGED"
    remedy = (
        "restore the old definition; a pipeline of another shape is a topology of another name, "
        "with tables of its own."
    )


class TargetTableTaken(Terminal):
    """The target table of a state belongs to something else."""

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
    remedy = "write it as libpq wants it, for example service=reliability."


class LedgerUnavailable(Transient):
    """The ledger's Postgres does not answer."""

    code = "LEDGER_UNAVAILABLE"
    remedy = "check that Postgres runs and that RELIABILITY_DSN and its service file name it."


class LedgerRefusedLogin(Terminal):
    """The ledger's Postgres refused the login."""

    code = "LEDGER_REFUSED_LOGIN"
    remedy = "check user and password in the libpq service and pass files."


class LedgerBusy(Transient):
    """A row of the ledger stayed locked for too long."""

    code = "LEDGER_BUSY"
    remedy = "nothing was changed; the next try takes it up again."


class LedgerNotMigrated(Terminal):
    """The ledger's schema is missing or older than this release."""

    code = "LEDGER_NOT_MIGRATED"
    remedy = "run `reliability migrate`, with --database NAME for a target database."


class LedgerTooNew(Terminal):
    """The ledger was migrated by a newer release."""

    code = "LEDGER_TOO_NEW"
    remedy = "install the release that migrated it, or a later one."


class MigrationChanged(Terminal):
    """A migration that was applied differs from the file of the same number."""

    code = "MIGRATION_CHANGED"
    remedy = "restore the file; changes belong into a migration with the next number."


class LedgerCorruption(Terminal):
    """The ledger holds what it never may; nothing was changed."""

    code = "LEDGER_CORRUPTION"
    remedy = "keep the database as it is and look at the row named above."


class EncodingUnsupported(Terminal):
    """The database has an encoding in which texts have another order than in Spark."""

    code = "ENCODING_UNSUPPORTED"
    remedy = "create the database with ENCODING 'UTF8' TEMPLATE template0, and migrate that one."


class TextNotStorable(Terminal):
    """A text cannot be stored in the database, or what is stored there is no text."""

    code = "TEXT_NOT_STORABLE"
    remedy = (
        "use a database with ENCODING 'UTF8', which holds every character but NUL; take NUL and "
        "bytes that are not UTF-8 out in the process function or at the source."
    )


class UnexpectedAnswer(Transient):
    """Postgres refused a statement of this package."""

    code = "UNEXPECTED_ANSWER"


# --- emission ------------------------------------------------------------------------------------


class DataIntervalMissing(Terminal):
    """The run has no data interval, and the spout reads by interval."""

    code = "DATA_INTERVAL_MISSING"
    remedy = "use a backfill, or trigger the run with a logical date between two ticks."


class LogicalDateTaken(Terminal):
    """The run has the logical date of a scheduled run, and is not that run."""

    code = "LOGICAL_DATE_TAKEN"
    remedy = (
        "delete this run: as long as it is there, Airflow does not run the interval that starts "
        "at its logical date. Then use a backfill, or a logical date between two ticks."
    )


class IntervalOverlap(Terminal):
    """The run's data interval overlaps an interval that was emitted, without being the same."""

    code = "INTERVAL_OVERLAP"
    remedy = "run the same interval again (clear or backfill it), or one that does not touch it."


class NothingToEmit(Transient):
    """The spout found nothing in the interval."""

    code = "NOTHING_TO_EMIT"
    remedy = (
        "check that the files have arrived and the pattern is right; if an empty interval is "
        "normal, say allow_empty=True in the spout."
    )


class SourceNotReady(Transient):
    """The source says that it is not ready to be read."""

    code = "SOURCE_NOT_READY"
    remedy = "nothing: it is asked again every 30 s, for 7 days, and no retry is spent on it."


class SourceUnreadable(Transient):
    """A source cannot be read."""

    code = "SOURCE_UNREADABLE"
    remedy = (
        "deliver the file again, complete, or look at the table's database; nothing was allocated "
        "by this run."
    )


class SourceChanged(Terminal):
    """A file or a table is not what it was when its batch was emitted."""

    code = "SOURCE_CHANGED"
    remedy = (
        "put the original file or rows back and clear the task; if they were exchanged on purpose, "
        "replay the txid with --refreeze, or its interval with the run's parameter `refreeze`."
    )


class SourceMoved(Transient):
    """The source of an opaque spout changed while an attempt read it."""

    code = "SOURCE_MOVED"
    remedy = "nothing: the next attempt reads what is there then."


class TooManyBatches(Terminal):
    """The interval has more batches than Airflow can map."""

    code = "TOO_MANY_BATCHES"
    remedy = "raise the spout's files per batch, or [core] max_map_length."


class TxidBlocked(Transient):
    """An older txid is uncommitted and nobody is working on it."""

    code = "TXID_BLOCKED"
    remedy = "clear the failed tasks of that run first; txids commit in order."


# --- what a person asks for ----------------------------------------------------------------------


class TxidHeld(Terminal):
    """The txid was rolled back, and is held until a person releases it."""

    code = "TXID_HELD"
    remedy = "run `reliability release`, and then clear the runs that it prints."


class RollbackNotPossible(Terminal):
    """A state does not keep what a rollback would take out."""

    code = "ROLLBACK_NOT_POSSIBLE"
    remedy = "roll back to a txid that all states of the topology can go back to."


class ParkNotPossible(Terminal):
    """The txid cannot be parked or skipped."""

    code = "PARK_NOT_POSSIBLE"
    remedy = "only an uncommitted txid can; what has committed is replayed, or rolled back."


class NothingToReplay(Terminal):
    """There is nothing that a replay or its dry run could replace."""

    code = "NOTHING_TO_REPLAY"
    remedy = "replays are of txids that have committed; `reliability status` shows which have."


class RefreezeNotPossible(Terminal):
    """The batch of a txid cannot be frozen anew."""

    code = "REFREEZE_NOT_POSSIBLE"
    remedy = "restore the source as it was, or correct it by a further batch with the difference."


class ExplainNotPossible(Terminal):
    """The state cannot say where the row comes from."""

    code = "EXPLAIN_NOT_POSSIBLE"
    remedy = "look at the definition of the topology's states."


# --- requests and attempts -----------------------------------------------------------------------


class NoRequest(Terminal):
    """The run has no request for this txid."""

    code = "NO_REQUEST"
    remedy = "clear the run from its emit task."


class AttemptUnknown(Terminal):
    """The ledger has no such attempt."""

    code = "ATTEMPT_UNKNOWN"
    remedy = "attempts are written txid:attempt_id; those of a txid start at 0."


class RequestClosed(Terminal):
    """The run's request for this txid was closed."""

    code = "REQUEST_CLOSED"
    remedy = "clear the task or the run to ask again."


class RequestGivenUp(Transient):
    """The run was silent for so long that its request was given up."""

    code = "REQUEST_GIVEN_UP"
    remedy = "nothing: the next try takes it up again."


class AttemptFenced(Transient):
    """The attempt was ended by somebody else; what it still does cannot count."""

    code = "ATTEMPT_FENCED"


class PredecessorFailed(Transient):
    """The batch starts where the one before it ended, and that one's attempt has ended."""

    code = "PREDECESSOR_FAILED"
    remedy = "nothing: the task begins the next attempt when the txid before has one."


class ReplayNotPossible(Terminal):
    """A state of the topology does not keep what a replay of this txid would have to replace."""

    code = "REPLAY_NOT_POSSIBLE"
    remedy = (
        "use a ContributionState for every table that is to be corrected by replays, and keep its "
        "history for long enough."
    )


class AlreadyAcked(Transient):
    """This partition has acked before: the work of another copy of the task counts."""

    code = "ALREADY_ACKED"


class AttemptIncomplete(Transient):
    """spark-submit ended before the attempt was complete."""

    code = "ATTEMPT_INCOMPLETE"
    remedy = "look at the end of the task's log; the next try begins a new attempt."


class RowsUnaccounted(Terminal):
    """Rows that were emitted did not arrive in a state, or arrived more than once."""

    code = "ROWS_UNACCOUNTED"
    remedy = (
        "look for an inner join, filter or union in the process function: every row of the "
        "batch must reach every state exactly once."
    )


class FrameWithoutAccounting(Terminal):
    """The process function returned a frame without the columns _x and _n."""

    code = "FRAME_WITHOUT_ACCOUNTING"
    remedy = "keep the columns _x and _n, and aggregate with reliability.aggregate()."


class SchemaMismatch(Terminal):
    """A frame's columns do not fit the state they are for."""

    code = "SCHEMA_MISMATCH"
    remedy = "cast in the process function, or change the state's definition before its first run."


class EvaluationLost(Transient):
    """An executor was lost with rows that several states share and that may come out differently.

    Spark would compute them again for the states that are still to be staged.
    """

    code = "EVALUATION_LOST"
    remedy = (
        "nothing: the next try evaluates them anew; if it happens often, see why executors end."
    )


class ProcessFunctionFailed(Transient):
    """The process function, or Spark while it ran it, raised an error."""

    code = "PROCESS_FUNCTION_FAILED"
    remedy = "the Spark log of this try has the whole error."


class RunUnsatisfied(Terminal):
    """A txid of this run is not committed as the run asked for."""

    code = "RUN_UNSATISFIED"
    remedy = "look at the red transaction above; clear it to try again."


class SuccessNotDone(Terminal):
    """Airflow calls a run success that the ledger has not done: marked by hand, or rolled back."""

    code = "SUCCESS_NOT_DONE"
    remedy = "clear the run; or, if its txids are not wanted, `reliability skip` them."


class SparkConnectionMissing(Terminal):
    """The Airflow connection to Spark does not exist."""

    code = "SPARK_CONNECTION_MISSING"
    remedy = "create the connection; without it the provider would submit to YARN."


# --- checkpoint ----------------------------------------------------------------------------------


class CheckpointTakenOver(LedgerBusy):
    """Another process has taken the topology's checkpoint over."""

    code = "CHECKPOINT_TAKEN_OVER"
    remedy = "nothing: that process goes on, and the next try sees what it did."


class CheckpointStuck(Transient):
    """A commit is decided, some databases may have it, and one cannot commit it."""

    code = "CHECKPOINT_STUCK"
    remedy = (
        "repair the database that is named; every task and sweep of the topology tries again, and "
        "until then none of its txids commits. If it can never take it, `reliability rollback` to "
        "a txid before it."
    )


class CheckpointMismatch(Terminal):
    """A target database has not applied the commit that the ledger says it has."""

    code = "CHECKPOINT_MISMATCH"
    remedy = (
        "one of the databases was restored from a backup or exchanged: restore all of them to the "
        "same commit number; nothing commits until they agree."
    )


class ParticipantTaken(Terminal):
    """A target database cannot take part in the topology under this name."""

    code = "PARTICIPANT_TAKEN"
    remedy = "give the topology another name, or the state another database."


class NotTheCoordinator(Terminal):
    """This database only takes part in the topology: its ledger is another."""

    code = "NOT_THE_COORDINATOR"
    remedy = "let RELIABILITY_DSN name the database that the topology was first run with."


def error_types() -> dict[str, type[ReliabilityError]]:
    """Return every error type by its code: the ledger stores codes, Airflow decides by type."""
    found: dict[str, type[ReliabilityError]] = {}
    pending: list[type[ReliabilityError]] = [ReliabilityError]
    while pending:
        error_type = pending.pop()
        found[error_type.code] = error_type
        pending.extend(error_type.__subclasses__())
    return found


def error_from_ledger(code: str | None, what: str) -> ReliabilityError:
    """Rebuild an error from what the ledger keeps of it: its code and its text."""
    error_type = error_types().get(code or "", AttemptIncomplete)
    return error_type(what)
