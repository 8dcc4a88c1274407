"""The operations that a history is made of; each makes sense, or does nothing, in any situation.

An operation names a txid by its distance from curr_txid, an attempt by its age: 0 is the txid's
newest, and a sink by its place. Most carry a fault that hits one of their transactions, and what
another process does in the middle of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from reliability.core.attempt import Grant
from reliability.core.errors import AttemptFenced, AttemptIncomplete, RunUnsatisfied
from reliability.transaction.correct.exclude import exclude, include
from reliability.transaction.correct.park import park, skip, unskip
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.requests import Run
from tests.simulation.connections import FAULTS, Fault, FaultKind
from tests.simulation.contents import PARTITIONS
from tests.simulation.world import Act, Silent, World


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One step of a history, with its fault, and what another process does in the middle of it."""

    fault: Fault | None = None
    within: Operation | None = None

    def act(self, world: World) -> None:
        """Do it."""
        raise NotImplementedError


def perform(world: World, operation: Operation) -> None:
    """Do it with its fault and what comes in between, and check all that can be seen."""
    if isinstance(operation, Outside):
        operation.act(world)
        return
    within = operation.within
    other: Act | None = None if within is None else lambda: within.act(world)
    world.perform(lambda: operation.act(world), operation.fault, other)


@dataclass(frozen=True)
class Emit(Operation):
    """A run's emit task."""

    run: str

    def act(self, world: World) -> None:
        world.emit(self.run)


class Outside(Operation):
    """An operation that leaves the ledger alone."""


@dataclass(frozen=True)
class Arrive(Outside):
    """The source gets an item more."""

    month: int
    rows: int

    def act(self, world: World) -> None:
        if len(world.source.items[self.month]) < 4:
            world.source.items[self.month].append(self.rows)


@dataclass(frozen=True)
class Ready(Outside):
    """The source can be read, or not now."""

    ready: bool

    def act(self, world: World) -> None:
        world.source.ready = self.ready


@dataclass(frozen=True)
class OfTxid(Operation):
    """An operation on one txid."""

    txid: int = 0

    def of(self, world: World) -> int:
        return min(max(world.seen.curr_txid + self.txid, 1), world.seen.txids)


@dataclass(frozen=True)
class Work(OfTxid):
    """One of a transaction's tasks does so many acts of its loop."""

    run: str = "A"
    task: int = -1
    acts: int = 8

    def act(self, world: World) -> None:
        txid, tasks = self.of(world), world.config.tasks
        world.work(world.run_of(self.run, txid), txid, tasks[self.task % len(tasks)], self.acts)


@dataclass(frozen=True)
class Claim(OfTxid):
    """A task begins if need be and takes up a step."""

    run: str = "A"
    task: int = 0

    def act(self, world: World) -> None:
        txid, tasks = self.of(world), world.config.tasks
        world.claim(world.run_of(self.run, txid), txid, tasks[self.task % len(tasks)])


@dataclass(frozen=True)
class OfAttempt(OfTxid):
    """An operation of what an attempt has started, be it the newest or a zombie."""

    age: int = 0

    def grant(self, world: World) -> Grant | None:
        return world.seen.grant(world.name, self.of(world), self.age)

    def act(self, world: World) -> None:
        if (grant := self.grant(world)) is not None:
            self.act_for(world, grant)

    def act_for(self, world: World, grant: Grant) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Stage(OfAttempt):
    """One Spark task, maybe of another write action than the driver's."""

    sink: int = 0
    partition: int = 0
    write: int = 0

    def act_for(self, world: World, grant: Grant) -> None:
        world.stage(grant, world.config.states[self.sink], self.partition, self.write)


@dataclass(frozen=True)
class Open(OfAttempt):
    """A driver makes ready for a state's rows, and nothing follows."""

    sink: int = 0

    def act_for(self, world: World, grant: Grant) -> None:
        world.open(grant, world.config.states[self.sink])


@dataclass(frozen=True)
class Write(OfAttempt):
    """A step's write actions, whole or in part; `declared` is off by so much, None for not at all.

    :param lost: a partition that is not staged
    :param twice: every Spark task runs twice
    """

    sinks: tuple[int, ...] = (0, 1)
    lost: int | None = None
    twice: bool = False
    write: int = 0
    declared: int | None = 0

    def act_for(self, world: World, grant: Grant) -> None:
        for sink in (world.config.states[place] for place in self.sinks):
            for partition in range(PARTITIONS[sink]):
                for _ in range(0 if partition == self.lost else 1 + self.twice):
                    world.stage(grant, sink, partition, self.write)
            if self.declared is not None:
                world.declare(grant, sink, max(PARTITIONS[sink] + self.declared, 0))


@dataclass(frozen=True)
class Declare(OfAttempt):
    """The driver says how many partitions there were."""

    sink: int = 0
    partitions: int = 2

    def act_for(self, world: World, grant: Grant) -> None:
        world.declare(grant, world.config.states[self.sink], self.partitions)


@dataclass(frozen=True)
class EndStep(OfAttempt):
    """A step's spark-submit has ended."""

    step: int = 0

    def act_for(self, world: World, grant: Grant) -> None:
        steps = world.runner.topology.steps
        world.runner.end_step(grant, steps[self.step % len(steps)].name)


@dataclass(frozen=True)
class Seal(OfAttempt):
    """Somebody seals, complete or not."""

    task: int = 0

    def act_for(self, world: World, grant: Grant) -> None:
        tasks = world.config.tasks
        world.runner.seal(grant, tasks[self.task % len(tasks)])


@dataclass(frozen=True)
class Finish(Seal):
    """A task goes on when its driver has ended: it ends the steps, and seals."""

    def act_for(self, world: World, grant: Grant) -> None:
        for step in world.runner.topology.steps:
            with suppress(AttemptFenced):  # it is done already, or the seal says why not
                world.runner.end_step(grant, step.name)
        super().act_for(world, grant)


@dataclass(frozen=True)
class Attempt(Claim):
    """A task claims a step, its driver writes in one way or another, and the task goes on."""

    write: Write = field(default_factory=Write)

    def act(self, world: World) -> None:
        super().act(world)
        world.look()
        replace(self.write, txid=self.txid).act(world)
        Finish(self.txid, task=self.task).act(world)


@dataclass(frozen=True)
class End(OfAttempt):
    """An attempt's driver or its watcher ends it."""

    fence: bool = False

    def act_for(self, world: World, grant: Grant) -> None:
        world.runner.end_attempt(grant, AttemptIncomplete("its JVM died"), fence=self.fence)


@dataclass(frozen=True)
class Commit(OfTxid):
    """Anybody commits whatever is due."""

    def act(self, world: World) -> None:
        world.runner.commit(self.of(world))


@dataclass(frozen=True)
class Close(OfTxid):
    """The teardown of a run's transaction."""

    run: str = "A"

    def act(self, world: World) -> None:
        txid = self.of(world)
        run = Run(dag_id=world.name, run_id=world.run_of(self.run, txid))
        world.runner.close(txid, run, "torn down")


@dataclass(frozen=True)
class Settle(Operation):
    """The last task of a run."""

    run: str

    def act(self, world: World) -> None:
        run = Run(dag_id=world.name, run_id=self.run)
        try:
            world.runner.settle(run, [])
        except RunUnsatisfied:
            return
        with FAULTS.armed(None):
            seen = world.look()
        latest = {r["txid"]: r for r in seen.requests if r["run_id"] == self.run}
        committed = {
            a["txid"]
            for a in seen.attempts
            if a["status"] == "COMMITTED" and a["verdict"] != "PARKED"
        }
        for txid, request in latest.items():
            by_another = request["kind"] == "COMMIT" and txid in committed
            is_done = request["status"] == "SATISFIED" or by_another
            assert is_done, "R3: green, and not all is done"


@dataclass(frozen=True)
class Clear(OfTxid, Outside):
    """A person clears a run's transaction, or the whole run; its tasks may not have started yet."""

    run: str = "A"
    whole: bool = False

    def act(self, world: World) -> None:
        txid = self.of(world)
        world.clear(world.run_of(self.run, txid), 0 if self.whole else txid)


@dataclass(frozen=True)
class Again(Work):
    """A person clears a task of a transaction, and it works."""

    def act(self, world: World) -> None:
        if FAULTS.is_first_try:
            Clear(self.txid, self.run).act(world)
        super().act(world)


@dataclass(frozen=True)
class DryRun(Work):
    """A person clears a transaction of a run that is to be a dry run, and its task works."""

    def act(self, world: World) -> None:
        txid, tasks = self.of(world), world.config.tasks
        run, task = world.run_of(self.run, txid), tasks[self.task % len(tasks)]
        if FAULTS.is_first_try:
            world.clear(run, txid)
        world.work(run, txid, task, self.acts, is_dry_run=True)


@dataclass(frozen=True)
class RollBack(OfTxid):
    """A person takes back what came after a txid, or asks what that would change."""

    dry_run: bool = False

    def act(self, world: World) -> None:
        to_txid = max(world.seen.curr_txid + self.txid - 1, 0)
        seen = world.look()
        # what a dead driver has decided is completed first, as by any sweep
        at_rest = seen.checkpoint["phase"] == "COMMITTED"
        before = seen.tables if self.dry_run and at_rest else None
        roll_back(world.connection, world.name, to_txid, "it was wrong", dry_run=self.dry_run)
        assert before is None or world.look().tables == before, "a dry run changed something"


@dataclass(frozen=True)
class Release(Operation):
    """A person lets what is held be processed again."""

    def act(self, world: World) -> None:
        release(world.connection, world.name)


@dataclass(frozen=True)
class CommitEmpty(OfTxid):
    """A person parks a txid, or skips it."""

    park: bool = True

    def act(self, world: World) -> None:
        (park if self.park else skip)(world.connection, world.name, self.of(world), "it is poison")


@dataclass(frozen=True)
class Unskip(OfTxid):
    """A person takes a skip back."""

    def act(self, world: World) -> None:
        unskip(world.connection, world.name, self.of(world), "it is needed")


@dataclass(frozen=True)
class Exclude(Operation):
    """A person excludes an item of the source, or includes it again."""

    month: int = 0
    offset: int = 0
    include: bool = False

    def act(self, world: World) -> None:
        item = f"memory:{self.month}:{self.offset}"
        (include if self.include else exclude)(world.connection, world.name, item, "its prices")


@dataclass(frozen=True)
class Stick(OfTxid):
    """Of two databases: a txid is processed and decided, and then a table refuses its rows (C6).

    :param sink: the state whose table refuses whatever comes from now on
    """

    run: str = "A"
    sink: int = 0

    def act(self, world: World) -> None:
        if world.config.databases == 1 or world.invariants.has_refused:
            return
        txid = self.of(world)
        for task in world.config.tasks[:-1]:
            world.work(world.run_of(self.run, txid), txid, task)
        world.decide()
        world.refuse(world.config.states[self.sink])


@dataclass(frozen=True)
class Mend(Outside):
    """The tables take their rows again."""

    def act(self, world: World) -> None:
        if world.invariants.has_refused:
            world.refuse(None)


@dataclass(frozen=True)
class HoursPass(Operation):
    """Time goes by, and somebody may be silent all the while."""

    silent: Silent

    def act(self, world: World) -> None:
        world.hours_pass(self.silent)


@dataclass(frozen=True)
class SetClock(Operation):
    """The server's clock jumps by two hours: forwards, or back."""

    hours: int

    def act(self, world: World) -> None:
        world.set_clock(self.hours)


@dataclass(frozen=True)
class Sweep(Operation):
    """Somebody passes by."""

    clean: bool = False

    def act(self, world: World) -> None:
        world.sweep(self.clean)


@dataclass(frozen=True)
class Late(Sweep):
    """Hours later somebody passes by and deletes."""

    def act(self, world: World) -> None:
        if FAULTS.is_first_try:
            world.hours_pass(Silent.NOBODY)
        world.sweep(clean=True)


@dataclass(frozen=True)
class Pause(Operation):
    """A person pauses the topology, or resumes it."""

    pause: bool

    def act(self, world: World) -> None:
        if self.pause:
            world.runner.pause("a person said so")
        else:
            world.runner.resume()


@dataclass(frozen=True)
class Restart(Outside):
    """All processes end and come again."""

    def act(self, world: World) -> None:
        world.restart()


# --- how histories are drawn ------------------------------------------------------------------


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Draw from one of several strategies, by weight; `one_of` takes equal ones for one."""
    drawn = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(range(len(drawn))).flatmap(drawn.__getitem__)


runs = st.sampled_from("AAB")
near = st.sampled_from([0, 0, 0, 0, 1, 1, 2, -1, -2])
committed = st.sampled_from([-1, -1, -2, 0])
ages = st.sampled_from([0, 0, 0, 0, 1, 2])
tasks = st.sampled_from([-1, 0, 1])
kinds = st.sampled_from(FaultKind)
faults = weighted((4, st.none()), (1, st.builds(Fault, kinds, st.integers(0, 30))))
few_faults = weighted((3, st.none()), (1, st.builds(Fault, kinds, st.integers(0, 4))))
sinks = st.sampled_from([0, 1])

_brief = st.one_of(
    st.builds(Claim, txid=near, run=runs, task=tasks),
    st.builds(Work, txid=near, run=runs, task=tasks, acts=st.integers(1, 8)),
    st.builds(Again, txid=near, run=runs, task=tasks),
    st.builds(End, txid=near, age=ages, fence=st.booleans()),
    st.builds(Commit, txid=near),
    st.builds(Close, txid=near, run=runs),
    st.builds(Emit, run=runs),
    st.builds(Sweep, clean=st.booleans()),
    st.builds(Seal, txid=near, age=ages, task=tasks),
    st.builds(Stage, txid=near, age=ages, sink=sinks, partition=st.integers(0, 2)),
)
within = weighted((6, st.none()), (1, _brief))

_claim = st.builds(Claim, txid=near, run=runs, task=tasks, fault=few_faults, within=within)
_work = st.builds(Work, txid=near, run=runs, task=tasks, fault=faults, within=within)
_some_work = st.builds(Work, txid=near, run=runs, task=tasks, acts=st.integers(1, 6))
_replay = st.builds(Again, txid=committed, run=runs, task=tasks, fault=faults, within=within)
_write = st.builds(
    Write,
    txid=near,
    age=ages,
    sinks=st.sampled_from([(0, 1), (0, 1), (0,), (1,)]),
    lost=st.sampled_from([None, None, None, None, 0, 1]),
    twice=st.booleans(),
    write=st.sampled_from([0, 0, 0, 1]),
    declared=st.sampled_from([0, 0, 0, 0, -1, 1, None]),
    fault=faults,
    within=within,
)
_attempt = st.builds(
    Attempt, txid=near, run=runs, task=tasks, write=_write, fault=few_faults, within=within
)
_of_spark = st.one_of(
    st.builds(Open, txid=near, age=ages, sink=sinks, fault=few_faults, within=within),
    st.builds(
        Stage,
        txid=near,
        age=ages,
        sink=sinks,
        partition=st.integers(0, 2),
        write=st.integers(0, 1),
        fault=few_faults,
        within=within,
    ),
    st.builds(
        Declare, txid=near, age=ages, sink=sinks, partitions=st.integers(0, 3), fault=few_faults
    ),
)
_end_step = st.builds(EndStep, txid=near, age=ages, step=st.integers(0, 1), fault=few_faults)
_seal = st.builds(Seal, txid=near, age=ages, task=tasks, fault=faults, within=within)
_finish = st.builds(Finish, txid=near, age=ages, task=tasks, fault=faults, within=within)
_end = st.builds(End, txid=near, age=ages, fence=st.booleans(), fault=few_faults)
_commit = st.builds(
    Commit,
    txid=near,
    fault=weighted((1, st.none()), (1, st.builds(Fault, kinds, st.integers(0, 14)))),
)
_of_runs = st.one_of(
    st.builds(Emit, run=runs, fault=faults, within=within),
    st.builds(Arrive, month=st.integers(0, 1), rows=st.integers(0, 2)),
    st.builds(Clear, txid=near, run=runs, whole=st.booleans()),
    st.builds(Close, txid=near, run=runs, fault=few_faults),
    st.builds(Settle, run=runs, fault=few_faults),
)
_of_time = st.one_of(
    st.builds(Late, fault=faults),
    st.builds(HoursPass, silent=st.sampled_from(Silent)),
    st.builds(SetClock, hours=st.sampled_from([2, -2])),
    st.builds(Sweep, clean=st.booleans(), fault=faults),
    st.builds(Restart),
)
_yes = st.sampled_from([True, True, True, False])
_of_people = st.one_of(
    st.builds(Pause, pause=_yes.map(lambda yes: not yes)), st.builds(Ready, ready=_yes)
)
operations = weighted(
    (6, _work),
    (2, _some_work),
    (2, _replay),
    (2, _claim),
    (2, _write),
    (1, _of_spark),
    (1, _end_step),
    (1, _seal),
    (1, _finish),
    (1, _attempt),
    (1, _end),
    (1, _commit),
    (2, _of_runs),
    (2, _of_time),
    (1, _of_people),
)

_roll_back = st.builds(
    RollBack,
    txid=st.sampled_from([-1, -1, -1, -2, -3, 0]),
    dry_run=st.sampled_from([False, False, True]),
    fault=faults,
)
_dry_run = st.builds(
    DryRun,
    txid=committed,
    run=runs,
    task=tasks,
    acts=st.sampled_from([8, 8, 3]),  # after three it is processed, and nothing is told yet
    fault=faults,
    within=within,
)
_exclude = st.builds(
    Exclude,
    month=st.sampled_from([0, 0, 0, 1]),
    offset=st.integers(0, 2),
    include=st.booleans(),
    fault=faults,
)
corrections = weighted(
    (24, operations),
    (4, _roll_back),
    (2, st.builds(Release, fault=few_faults)),
    (2, st.builds(CommitEmpty, txid=near, park=st.booleans(), fault=faults)),
    (2, st.builds(Unskip, txid=st.sampled_from([-1, 0]), fault=few_faults)),
    (3, _exclude),
    (3, _dry_run),
    (3, st.builds(Stick, txid=st.sampled_from([0, 0, -1]), run=runs, sink=sinks)),
    (1, st.builds(Mend)),
)
"""What people do who take back what is wrong, in between everything else."""
