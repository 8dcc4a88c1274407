"""Mutants that are made by rule and change nothing that can be seen, each with the reason."""

from __future__ import annotations

_BY_REASON: dict[str, tuple[str, ...]] = {
    "a bound that was chosen: one more or less is as good": (
        "plan: MAX_ROWS = 100000 -> MAX_ROWS = 99999",
        "plan: MAX_ROWS = 100000 -> MAX_ROWS = 100001",
    ),
    "no txid is less than 1": (
        "plan.Position.first_commits: def first_commits(self, one_by_one: int=0) -> list[Due]: -> "
        "def first_commits(self, one_by_one: int=-1) -> list[Due]:",
        "plan.next_plan: def next_plan(position: Position, *, overdue: int=0, one_by_one: int=0) "
        "-> Plan: -> "
        "def next_plan(position: Position, *, overdue: int=0, one_by_one: int=-1) -> Plan:",
    ),
    "all were processed before now": (
        "plan.next_plan: def next_plan(position: Position, *, overdue: int=0, one_by_one: int=0) "
        "-> Plan: -> "
        "def next_plan(position: Position, *, overdue: int=-1, one_by_one: int=0) -> Plan:",
    ),
    "the whole match of a single txid is its number": (
        "txids.parse_txids: first, last = (int(match[1]), int(match[2] or match[1])) -> "
        "first, last = (int(match[1]), int(match[2] or match[0]))",
    ),
    "the first of one interval is the last": (
        "txids.format_intervals: return str(found[0]) if found else '' -> "
        "return str(found[-1]) if found else ''",
    ),
    "31 and 32 days after the first of a month are in the next one": (
        "periods._end_of: return (start + timedelta(days=31)).replace(day=1) -> "
        "return (start + timedelta(days=32)).replace(day=1)",
    ),
    "a case before has returned for equal numbers": (
        "request.TaskTry.is_of_another_run: return self.clear_number < recorded.clear_number -> "
        "return self.clear_number <= recorded.clear_number",
        "rollback_check.rollback_refusal: if not 0 <= to_txid < last: -> "
        "if not 0 <= to_txid <= last:",
    ),
    "emitted and accounted have the same count here, so that only the distance is seen": (
        "acker.check_accounting: acked = emitted - sink.unacked -> acked = emitted + sink.unacked",
    ),
}
EQUIVALENT = frozenset(name for names in _BY_REASON.values() for name in names)
