"""What has to hold in every snapshot of every history (G1 to G4, G8), and between two of them.

`Books` are the checks of one database; `Invariants` adds those of the coordinator's ledger, and
`Mirror` those of a second target database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.checkpoint import Phase
from reliability.core.spout import SpoutKind
from reliability.core.state import StateKind
from tests.simulation.config import Config
from tests.simulation.contents import BEST, LINES, VIEW, Tuple, expected, tuples
from tests.simulation.observed import Observed, Rows

BY_A_PERSON = ("excluded: ", "included: ", "parked: ", "skipped: ", "unskipped: ")  # C7 to C9
LIVE = ("PROCESSING", "SEALING", "PROCESSED")
SEALED = ("PROCESSED", "COMMITTED", "REPLACED", "ROLLED_BACK", "DRY_RUN")
ENDED = ("FAILED", "FENCED", "REPLACED", "ROLLED_BACK", "DRY_RUN")
AFTER = {
    None: {"PROCESSING"},
    "PROCESSING": {"SEALING", "FAILED", "FENCED"},
    "SEALING": {"PROCESSED", "FAILED", "FENCED"},
    "PROCESSED": {"COMMITTED", "FAILED", "FENCED", "DRY_RUN"},
    "COMMITTED": {"REPLACED", "ROLLED_BACK"},
}
Key = tuple[int, int]
Contents = Callable[[Key], Sequence[Tuple]]


def key_of(row: dict[str, Any]) -> Key:
    """Return (txid, attempt_id)."""
    return row["txid"], row["attempt_id"]


class Books:
    """The checks of one database's ledger and target tables.

    :param held: the states and attempts whose table a COPY holds, so that nobody can drop it
    """

    def __init__(self, config: Config, held: Container[tuple[str, Key]]) -> None:
        self.config = config
        self.held = held
        self._traces: dict[Any, Any] = {}
        self._shown: dict[tuple[str, Key], int] = {}
        self._left: set[int] = set()  # tables that a commit could not drop: they were held

    def check_books(self, seen: Observed, contents: Contents) -> None:
        """Raise AssertionError for anything that must not be."""
        self._commit_log(seen)
        self._pointers(seen)
        self._statuses(seen)
        self._sealed(seen)
        self._ended(seen)
        self._attempt_tables(seen)
        self._tables(seen, contents)

    def _commit_log(self, seen: Observed) -> None:
        curr_txid, last = 1, 0
        for commit in seen.commits:
            skipped, last = commit["commit_number"] - last - 1, commit["commit_number"]
            # C6: what was decided and dropped has left its numbers unused
            assert skipped == 0 or (skipped > 0 and commit["kind"] == "ROLLBACK"), "C2: no gap"
            match commit["kind"]:
                case "COMMIT":
                    assert commit["txid"] == curr_txid, "G1, G2: each txid commits once, in order"
                    curr_txid += 1
                case "REPLAY":
                    assert commit["txid"] < curr_txid, "R1: a replay of what has not committed"
                case "ROLLBACK":
                    least = commit["txid"] + (1 if skipped else 2)
                    assert curr_txid >= least, "H4: a rollback takes something back"
                    curr_txid = commit["txid"] + 1
        assert curr_txid == seen.curr_txid, "G2: curr_txid is the log's"
        assert seen.topology["commit_number"] == seen.commit_number, "C2: the topology is at c"
        assert {s["commit_number"] for s in seen.states} <= {seen.commit_number}, "G3: states at c"

    def _pointers(self, seen: Observed) -> None:
        logged: dict[int, tuple[int, int]] = {}
        for commit in seen.commits:
            if commit["kind"] == "ROLLBACK":
                logged = {txid: at for txid, at in logged.items() if txid <= commit["txid"]}
                continue
            before = logged.get(commit["txid"], (None, None))[0]
            assert commit["replaced_attempt"] == before, "H1: a swap replaces what was committed"
            logged[commit["txid"]] = commit["attempt_id"], commit["commit_number"]
        for t in seen.transactions:
            pointer = (t["committed_attempt"], t["commit_number"])
            assert pointer == logged.get(t["txid"], (None, None)), "H1: the pointer is the log's"
        for header in seen.headers:
            assert header["attempt_id"] == logged[header["txid"]][0], "H2: headers follow"
        assert len(seen.headers) == len(logged) * len(seen.states), "H2: one per state and txid"

    def _statuses(self, seen: Observed) -> None:
        counting = {(t["txid"], t["committed_attempt"]) for t in seen.transactions}
        live: set[int] = set()
        for a in seen.attempts:
            is_counted = a["status"] == "COMMITTED"
            assert is_counted == (key_of(a) in counting), "A8: what counts is COMMITTED"
            if a["status"] in LIVE:
                assert a["txid"] not in live, "A8: one live attempt per txid"
                live.add(a["txid"])

    def _sealed(self, seen: Observed) -> None:
        """A5, A6: what is sealed has each partition's ack once, and never changes again."""
        statuses = {key_of(a): a["status"] for a in seen.attempts}
        for sink in seen.sinks:
            if statuses[key_of(sink)] in SEALED:
                assert sink["acked"] == list(range(sink["partitions"])), "A5: 0 … n - 1 acked"
                assert (sink["ack_val"], sink["unacked"]) == (0, 0), "V1: the tree is acked"
        for key, status in statuses.items():
            if status == "PROCESSED":
                self._stays(seen, key, "sealed")

    def _ended(self, seen: Observed) -> None:
        """G4: what has ended stays as it was: nothing late adds an ack or a row."""
        for a in seen.attempts:
            if a["status"] in ENDED:
                rows = self._stays(seen, key_of(a), "ended")
                assert not (a["cleaned"] and rows), f"K1: {key_of(a)} is cleaned, but for its rows"

    def _stays(self, seen: Observed, key: Key, since: str) -> dict[str, int]:
        """Check that acks and rows are as they were; what has ended may lose a state's rows."""
        acks = sorted(
            (s["sink"], s["partitions"], s["ack_val"], s["unacked"], str(s["acked"]))
            for s in seen.sinks
            if key_of(s) == key
        )
        rows = {s["sink"]: s["rows"] for s in seen.staged if key_of(s) == key and s["rows"]}
        before = self._traces.setdefault((key, since), (acks, rows))
        assert acks == before[0], f"G4, A6: {key} was {since}, and has another ack now"
        is_same = rows == before[1] or (since == "ended" and rows.items() <= before[1].items())
        assert is_same, f"G4, A6: {key} was {since}, and has other rows now"
        return rows

    def _attempt_tables(self, seen: Observed) -> None:
        """H10, H11: the ledger names each table, and it is there while somebody may read it."""
        assert not seen.forgotten, f"H10: nothing names the tables {seen.forgotten}"
        attempts = {key_of(a): a for a in seen.attempts}
        headers = {(h["state"], key_of(h)) for h in seen.headers}
        named = {(t["state"], key_of(t)): t["table_id"] for t in seen.attempt_tables}
        for of, number in named.items():
            if of in headers:
                if of in self.held:
                    self._left.add(number)
                is_left = number in self._left
                assert of[0] != LINES or is_left, f"H10: the table {number} has been copied"
                if of[0] == VIEW:
                    self._shown[of] = number
        for of, number in self._shown.items():
            may_be_read = of in headers or attempts[of[1]]["ended_lately"]
            assert named.get(of) == number or not may_be_read, f"H11: readers lose table {number}"

    def check_swept(self, seen: Observed, coordinator: Observed) -> None:
        """H10, H11: long after the last change, a sweep leaves no table that cannot count."""
        live = {key_of(a) for a in coordinator.attempts if a["status"] in LIVE}
        headers = {(h["state"], key_of(h)) for h in seen.headers}
        for table in seen.attempt_tables:
            is_shown = table["state"] != LINES and (table["state"], key_of(table)) in headers
            counts = key_of(table) in live or is_shown
            assert counts, f"H11: nobody drops the table {table}"

    def _tables(self, seen: Observed, contents: Contents) -> None:
        committed = [
            (TransactionAttempt(*key), contents(key))
            for key in (
                (t["txid"], t["committed_attempt"])
                for t in seen.transactions
                if t["committed_attempt"] is not None
            )
        ]
        for state, rows in seen.tables.items():
            assert rows == expected(state, committed), f"G1, G3, H11: state {state}"


class Invariants(Books):
    """The checks of the coordinator's ledger; remembers what each attempt read."""

    def __init__(self, config: Config, held: Container[tuple[str, Key]]) -> None:
        super().__init__(config, held)
        self.raised: dict[tuple[str, int], int] = defaultdict(int)
        self._nonces: dict[Key, str] = {}
        self._batches: dict[Key, Any] = {}
        self._empty: set[Key] = set()
        self._frozen: dict[int, Any] = {}
        self._commits = 0
        self.is_gathering = False  # no first commit may follow
        self.has_refused = False  # a table has refused whatever came

    def check(self, seen: Observed) -> None:
        """Raise AssertionError for anything that must not be."""
        self._order(seen)
        self._checkpoint(seen)
        self._attempts(seen)
        self._story(seen)
        self._batches_stay(seen)
        self._excluded(seen)
        self._requests(seen)
        if self.config.spout is SpoutKind.OPAQUE:
            self._cascades(seen)
        self.check_books(seen, self.contents)

    def knows(self, attempt: TransactionAttempt) -> bool:
        """Say whether a snapshot has shown the attempt."""
        return (attempt.txid, attempt.attempt_id) in self._batches

    def contents(self, key: Key) -> Sequence[Tuple]:
        """Return the rows of an attempt: by what it read when it began, whatever it reads now."""
        if key in self._empty:
            return []
        rows = sum(item["rows"] for item in self._batches[key])
        return self.contents_of(TransactionAttempt(*key), rows)

    def contents_of(self, attempt: TransactionAttempt, rows: int) -> Sequence[Tuple]:
        """Return the rows of an attempt whose batch has so many."""
        poisoned = (attempt.txid, attempt.attempt_id) in self.config.poison
        return tuples(attempt, rows, poisoned)

    # --- G2: order -------------------------------------------------------------------------------

    def _order(self, seen: Observed) -> None:
        txids = [t["txid"] for t in seen.transactions]
        assert txids == list(range(1, seen.topology["next_txid"])), "E3: txids have no gap"
        committed = [t["txid"] for t in seen.transactions if t["committed_attempt"] is not None]
        assert committed == list(range(1, seen.curr_txid)), "G2: 1 … curr_txid - 1 are committed"
        new, self._commits = seen.commits[self._commits :], len(seen.commits)
        self._held(seen, new)
        self._gathers(seen, new)
        self._skipped(seen)

    def _skipped(self, seen: Observed) -> None:
        """C8: what is skipped has committed as empty, if at all."""
        verdicts = {key_of(a): a["verdict"] for a in seen.attempts}
        skipped = {skip["txid"] for skip in seen.skips if skip["is_active"]}
        for t in seen.transactions:
            if t["txid"] in skipped and t["committed_attempt"] is not None:
                assert verdicts[t["txid"], t["committed_attempt"]], "C8: a skipped txid came back"

    def _gathers(self, seen: Observed, new: Rows) -> None:
        """C5: first commits keep the checkpoint interval, unless they were decided before it."""
        is_first = any(commit["kind"] == "COMMIT" for commit in new)
        assert not (self.is_gathering and is_first), "C5: the checkpoint interval"
        at_rest = seen.checkpoint["phase"] == Phase.COMMITTED.value
        self.is_gathering = seen.topology["is_gathering"] and at_rest

    def _held(self, seen: Observed, new: Rows) -> None:
        held = {t["txid"] for t in seen.transactions if t["is_held"]}
        live = {a["txid"] for a in seen.attempts if a["status"] in LIVE}
        assert not held & live, "H4: a held txid is processed"
        if new and new[-1]["kind"] == "ROLLBACK":
            later = {t["txid"] for t in seen.transactions if t["txid"] > new[-1]["txid"]}
            assert held == later, "H4: what was rolled back is held"

    def _checkpoint(self, seen: Observed) -> None:
        checkpoint = seen.checkpoint
        at_rest = checkpoint["phase"] == Phase.COMMITTED.value
        assert at_rest or self.config.databases == 2, "C2: with one database nothing is on its way"
        plan = checkpoint["plan"]
        aim = seen.commit_number + len(plan) + sum(each.get("dropped", 0) for each in plan)
        assert checkpoint["commit_number"] == aim, "C2: the checkpoint counts c"

    # --- attempts --------------------------------------------------------------------------------

    def _attempts(self, seen: Observed) -> None:
        ids: dict[int, int] = defaultdict(int)
        replaying = 0
        for a in seen.attempts:
            txid = a["txid"]
            assert a["attempt_id"] == ids[txid], "A1: attempt ids rise by one"
            ids[txid] += 1
            nonce = self._nonces.setdefault(key_of(a), a["nonce"])
            assert nonce == a["nonce"], "A1: an attempt id is granted once"
            if a["verdict"] is not None:  # a person's word, wherever the window is
                self._empty.add(key_of(a))
            elif a["status"] in LIVE:
                assert txid < seen.curr_txid + self.config.pending, "the window"
                replaying += txid < seen.curr_txid and a["status"] != "PROCESSED"
        assert replaying <= self.config.pending, "as many replays as fit into the window"
        assert len(self._nonces) == len(seen.attempts), "A1: no attempt is forgotten"

    def _story(self, seen: Observed) -> None:
        """Every change of every attempt that the trigger has written, also between snapshots."""
        last: dict[Key, str] = {}
        unwanted = self._unwanted(seen)
        for event in seen.events:
            key, status = key_of(event), event["status"]
            before = last.get(key)
            assert status in AFTER.get(before, set()), f"G4: {key}: {before} → {status}"
            if (before, status) == ("PROCESSED", "FAILED"):
                why = self._may_fall(event["reason_code"]) or key in self.config.poison
                assert why, "A8: nobody fails what is sealed"
            if (before, status) == ("PROCESSED", "FENCED"):
                by_a_person = event["reason"].startswith(BY_A_PERSON)
                why = event["reason_code"] == "ROLLED_BACK" or key in unwanted or by_a_person
                assert why, "A8: nobody fences what is sealed"
            last[key] = status
        assert last == {key_of(a): a["status"] for a in seen.attempts}

    def _unwanted(self, seen: Observed) -> set[Key]:
        """Return the attempts of dry runs, and those of txids that a person passed over later."""
        dry_runs = {r["request_id"] for r in seen.requests if r["is_dry_run"]}
        last_empty: dict[int, int] = dict(sorted(self._empty))
        return {
            key_of(a)
            for a in seen.attempts
            if a["request_id"] in dry_runs or a["attempt_id"] < last_empty.get(a["txid"], -1)
        }

    def _may_fall(self, reason: str) -> bool:
        """Say whether a sealed attempt can fall for this, besides by what its data violate."""
        if reason == "UNEXPECTED_ANSWER":  # a table refused its rows
            return self.has_refused
        if reason == "REPLAY_NOT_POSSIBLE":  # a later txid committed before it (H5)
            return BEST in self.config.states and self.config.best is StateKind.OPAQUE
        return reason == "PREDECESSOR_FAILED" and self.config.spout is SpoutKind.OPAQUE

    def _batches_stay(self, seen: Observed) -> None:
        for t in seen.transactions:
            if t["batch_meta"] is not None:
                frozen = self._frozen.setdefault(t["txid"], t["batch_meta"])
                assert frozen == t["batch_meta"], "E4: a frozen batch stays what it is"
        for a in seen.attempts:
            own = a["batch_meta"]
            meta = self._frozen.get(a["txid"]) if own is None else own
            assert self._batches.setdefault(key_of(a), meta) == meta, "E4: an attempt's one batch"
        frozen_items = [
            (txid, _named(item)) for txid, meta in self._frozen.items() for item in meta
        ]
        assert sorted((i["txid"], i["item"]) for i in seen.items) == sorted(frozen_items), "E1, E4"
        assert len({item for _, item in frozen_items}) == len(frozen_items), "E1: one txid each"

    def _excluded(self, seen: Observed) -> None:
        """C9: what is live reads no excluded item, and leaves out nothing that is included."""
        excluded = {one["item"] for one in seen.exclusions if one["is_active"]}
        for a in seen.attempts:
            if a["status"] in LIVE and a["verdict"] is None:
                read = {_named(item) for item in self._batches[key_of(a)]}
                assert not read & excluded, "C9: an excluded item is read"
                assert {*a["left_out"]} <= excluded, "C9: an included item is left out"

    def _cascades(self, seen: Observed) -> None:
        """E4: a batch starts where one ended that was committed, or may still be."""
        status = {key_of(a): a["status"] for a in seen.attempts}
        starts = {key_of(a): a["predecessor_attempt"] for a in seen.attempts}
        own = {
            key_of(a) for a in seen.attempts if a["batch_meta"] is not None and not a["left_out"]
        }
        committed: set[tuple[int, int | None]] = set()
        for commit in seen.commits:
            if commit["kind"] == "ROLLBACK":
                committed = {key for key in committed if key[0] <= commit["txid"]}
                continue
            # what was rolled back and commits again has the batch that it was frozen with
            if commit["kind"] == "COMMIT" and commit["txid"] > 1 and key_of(commit) in own:
                start = (commit["txid"] - 1, starts[key_of(commit)])
                assert start in committed, "E4: a batch starts where a committed one ended"
            committed.add(key_of(commit))
        for key, before in starts.items():
            if before is not None and status[key] in LIVE:
                fallen = ("FAILED", "FENCED", "ROLLED_BACK")
                assert status[key[0] - 1, before] not in fallen, "E4: the cascade"

    # --- requests --------------------------------------------------------------------------------

    def _requests(self, seen: Observed) -> None:
        """R1, G8: asking again without a clear neither opens a request nor makes a replay."""
        commits: dict[int, list[int]] = defaultdict(list)
        for commit in seen.commits:
            if commit["kind"] == "ROLLBACK":
                for txid in [txid for txid in commits if txid > commit["txid"]]:
                    del commits[txid]
            else:
                commits[commit["txid"]].append(commit["attempt_id"])
        statuses = {key_of(a): a for a in seen.attempts}
        parked = {key for key, a in statuses.items() if a["verdict"] == "PARKED"}
        skipped = {skip["txid"] for skip in seen.skips}  # C8: nothing need be done for a request
        dry = {a["request_id"] for a in seen.attempts if a["status"] == "DRY_RUN"}
        for r in seen.requests:
            most = 1 + self.raised[r["run_id"], 0] + self.raised[r["run_id"], r["txid"]]
            assert r["number"] <= most, "R1: a retry opened a request"
            if r["is_dry_run"]:
                is_done = r["request_id"] in dry or r["txid"] in skipped
                assert r["status"] != "SATISFIED" or is_done, "H: a dry run"
            elif r["status"] == "SATISFIED" and r["txid"] not in skipped:
                done = [n for n in commits[r["txid"]] if (r["txid"], n) not in parked]
                newest = max(done, default=-1)
                assert newest >= 0, "R3: satisfied, and not committed"
                assert newest > r["granted_after"] or r["kind"] == "COMMIT", "R2: a replay anew"
            elif r["kind"] == "COMMIT" and r["status"] in ("OPEN", "GIVEN_UP"):
                assert not commits[r["txid"]], "a commit satisfies who wants it"
        dry_runs = {r["request_id"] for r in seen.requests if r["is_dry_run"]}
        replays = {r["request_id"] for r in seen.requests if r["kind"] == "REPLAY"} - dry_runs
        asked = {key_of(a): a["request_id"] for a in seen.attempts}
        assert dry <= dry_runs, "R2: a dry run has ended a real attempt"
        for commit in seen.commits:
            assert asked.get(key_of(commit)) not in dry_runs, "R2: a dry run has committed"
        for commit in seen.commits:
            if commit["kind"] == "REPLAY":
                assert asked[key_of(commit)] in replays, "R1: a retry became a replay"


def _named(item: dict[str, Any]) -> str:
    return f"memory:{item['partition']}:{item['offset']}"


class Mirror(Books):
    """The checks of a second target database, and that it agrees with the coordinator (C2, C6)."""

    def check(self, seen: Observed, coordinator: Observed, contents: Contents) -> None:
        """Raise AssertionError for anything that must not be."""
        self.check_books(seen, contents)
        checkpoint = coordinator.checkpoint
        plan = checkpoint["plan"] if checkpoint["phase"] == Phase.COMMITTING.value else []
        decided = [_entry(commit) for commit in [*coordinator.commits, *plan]]
        numbers = {number for number, *_ in decided}
        last = max(numbers, default=0)
        # C6: what the coordinator has dropped may be here, and is undone with the rollback
        own = [
            entry for entry in map(_entry, seen.commits) if entry[0] in numbers or entry[0] > last
        ]
        committed = decided[: len(coordinator.commits)]
        assert own in (committed, decided), "C6: only what is decided"
        assert seen.checkpoint["commit_number"] == seen.commit_number, "C2: it counts c"


def _entry(commit: dict[str, Any]) -> tuple[Any, ...]:
    """Make an entry of a log and one of a plan comparable."""
    names = ("commit_number", "txid", "attempt_id", "replaced_attempt")
    return tuple(commit[name] for name in names)
