"""One seeded mutant of the product, or more, for every rule of PROTOCOL R, E, A, C, H, S and K.

Of the rules V, for V1, V2, V3, V5, V8 and V9.

A mutant is a text of the product that is replaced by another, so that the rule does not hold any
more, and the tests that must fail then. A text has to be there exactly once: when the code moves,
the table says so instead of testing nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

REQUESTS = "tests/integration/test_requests.py::"
EMISSION = "tests/integration/test_txid_membership.py::"
ATTEMPTS = "tests/integration/test_fence_and_lease.py::"
COMMITS = "tests/integration/test_serial_commits.py::"
CHANGED = "tests/integration/test_changed_definitions.py::"
ALTERED = "tests/integration/test_altered_states.py::"
WAY_OUT = "tests/integration/test_way_out.py::"
EMIT = "tests/integration/test_emission.py::"
INTERVALS = "tests/integration/test_intervals.py::"

SESSIONS = "tests/integration/test_postgres_sessions.py::"
WAITING = "tests/integration/test_waiting.py::"
DEFERRALS = "tests/dags/test_deferrals.py::"
REFUSALS = "tests/integration/test_refusals.py::"
HISTORY = "tests/integration/test_corrections.py::"
SUMS = "tests/integration/test_sums.py::"
STATES = "tests/integration/test_states.py::"
CLI = "tests/integration/test_cli.py::"
REDUCE = "tests/integration/test_reduce.py::"
OPAQUE = "tests/integration/test_opaque_sources.py::"
OWN_SPOUT = "tests/integration/test_own_spout.py::"
LEFT_OUT = "tests/integration/test_left_out.py::"
BY_HAND = "tests/integration/test_by_hand.py::"
VIEWS = "tests/integration/test_views_of_appended_rows.py::"
TABLES = "tests/integration/test_attempt_tables.py::"
SPARK_SESSIONS = "tests/integration/test_spark_sessions.py::"
WARM = "tests/integration/test_warm_engine.py::"
RECORDS = "tests/unit/test_text_records.py::"
MALFORMED = "tests/integration/test_malformed.py::"
ASIDE = "tests/integration/test_set_aside.py::"
QUARANTINE = "tests/integration/test_quarantine.py::"
DRIFT = "tests/integration/test_drift.py::"
HIDDEN = "tests/integration/test_hidden_accounting.py::"
AUDITS = "tests/integration/test_audits.py::"
FRAMES = "tests/integration/test_frames.py::"
ONCE = "tests/integration/test_one_evaluation.py::"
REPEATABLE = "tests/integration/test_repeatable.py::"
ALERTS = "tests/integration/test_alerts.py::"
PAGE = "tests/integration/test_page.py::"

NOT_BUILT: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A product in which a rule does not hold.

    :param rule: as PROTOCOL numbers it
    :param name: what the mutant does, in a few words
    :param tests: all of them fail with it
    :param in_histories: the simulation finds it within its histories, too
    """

    rule: str
    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    in_histories: bool = False


MUTANTS = (
    Mutant(
        rule="R1",
        name="a retry opens a request",
        path="reliability/core/request.py",
        old="        now.max_tries != recorded.max_tries\n",
        new="        now.max_tries >= recorded.max_tries\n",
        tests=(
            "tests/unit/test_clear_or_retry.py::test_contact",
            REQUESTS + "test_a_retry_after_success_is_no_replay_and_a_clear_is",
        ),
        in_histories=True,
    ),
    Mutant(
        rule="R1",
        name="max_tries alone tells a clear",
        path="reliability/core/request.py",
        old="        or (now.clear_number > recorded.clear_number and now.is_first)\n",
        new="",
        tests=(
            "tests/unit/test_clear_or_retry.py::test_a_clear_is_told_from_a_retry_by_no_counter_alone",
        ),
    ),
    Mutant(
        rule="R1",
        name="a run made again is the old one",
        path="reliability/core/request.py",
        old="        or now.is_of_another_run(recorded)\n",
        new="",
        tests=(
            "tests/unit/test_clear_or_retry.py::test_a_clear_is_told_from_a_retry_by_no_counter_alone",
        ),
    ),
    Mutant(
        rule="R1",
        name="a step that is cleared alone adopts what was done without it",
        path="reliability/core/request.py",
        old=" or (\n            latest.downstream_has_worked and not now.is_new\n        )\n",
        new="\n",
        tests=(REQUESTS + "test_a_step_that_is_cleared_alone_after_its_commit_was_is_a_replay",),
    ),
    Mutant(
        rule="R1",
        name="the end of a transaction's tasks is forgotten",
        path="reliability/transaction/emit/requests.py",
        old='        tx.run("record_tasks_ended", **key, **run)\n        return row is',
        new="        return row is",
        tests=(REQUESTS + "test_a_run_that_was_deleted_and_made_again_asks_anew",),
    ),
    Mutant(
        rule="R2",
        name="a run does not wait for another's attempt",
        path="reliability/core/coordinator.py",
        old="not is_own and not live.lease_expired:",
        new="live.request_id != request.request_id and live.lease_expired:",
        tests=(
            REQUESTS
            + "test_another_runs_attempt_is_waited_for_and_taken_over_when_its_lease_is_over",
        ),
    ),
    Mutant(
        rule="R2",
        name="a PROCESSED attempt of another request is nobody's",
        path="reliability/core/coordinator.py",
        old="    if live.is_processed:\n",
        new="    if live.is_processed and live.request_id == request.request_id:\n",
        tests=(REQUESTS + "test_a_processed_attempt_of_another_run_is_taken_as_ones_own",),
    ),
    Mutant(
        rule="R2",
        name="a dry run commits",
        path="sql/migrations/0008_commit.sql",
        old="WHERE r.request_id = a.request_id AND r.is_dry_run)",
        new="WHERE r.request_id = a.request_id AND false)",
        tests=("tests/replay/test_identities.py::test_a_dry_run_that_died_is_in_nobodys_way",),
    ),
    Mutant(
        rule="R3",
        name="a request that is being given up gets an attempt",
        path="reliability/transaction/process/begin.py",
        old='        tx.queue("hold_request", request_id=request_id)\n',
        new="",
        tests=(REQUESTS + "test_what_a_sweep_gives_up_meanwhile_gets_no_attempt",),
    ),
    Mutant(
        rule="R3",
        name="an older attempt does a replay that has ended",
        path="sql/migrations/0004_attempt.sql",
        old="r.granted_after < a.attempt_id AND NOT",
        new="NOT",
        tests=(REQUESTS + "test_a_replay_that_ended_without_its_attempt_is_done_by_a_newer_one",),
    ),
    Mutant(
        rule="R3",
        name="nothing does a replay that has ended",
        path="sql/migrations/0004_attempt.sql",
        old="r.granted_after < a.attempt_id AND NOT",
        new="false AND NOT",
        tests=(REQUESTS + "test_a_replay_that_ended_without_its_attempt_is_done_by_a_newer_one",),
    ),
    Mutant(
        rule="R3",
        name="settle is content with what is not closed",
        path="reliability/transaction/emit/requests.py",
        old='done = {row["txid"] for row in rows if row["is_done"]}',
        new='done = {row["txid"] for row in rows if row["status"] != "CLOSED"}',
        tests=(
            REQUESTS
            + "test_settle_is_green_only_when_the_latest_request_of_each_txid_is_satisfied",
        ),
        in_histories=True,
    ),
    Mutant(
        rule="R3",
        name="a run waits for what it gave up itself",
        path="reliability/core/coordinator.py",
        old="(request.dag_id, request.run_id) in blocked.requested_by:",
        new="snapshot.is_replay:",
        tests=(REQUESTS + "test_what_waits_for_a_closed_txid_fails_at_once_and_names_it",),
    ),
    Mutant(
        rule="R3",
        name="a red run that is open in the ledger is at work",
        path="reliability/transaction/correct/resume_runs.py",
        old="    if row is not None and run.has_ended:\n",
        new="    if row is None:\n",
        tests=(
            "tests/integration/test_cli.py"
            "::test_a_red_run_whose_teardowns_could_not_log_in_is_told_before_any_sweep",
        ),
    ),
    Mutant(
        rule="R3",
        name="a silent run is at work until a sweep",
        path="sql/queries/cli.sql",
        old="IN ('CLOSED', 'GIVEN_UP') OR is_silent)",
        new="IN ('CLOSED', 'GIVEN_UP'))",
        tests=(
            "tests/integration/test_cli.py"
            "::test_a_red_run_whose_teardowns_could_not_log_in_is_told_before_any_sweep",
        ),
    ),
    Mutant(
        rule="R3",
        name="a dry run that is ended finds a corrupt ledger",
        path="reliability/transaction/commit/dry_run.py",
        old="            raise _ended(txid) from error\n",
        new="            raise\n",
        tests=(REQUESTS + "test_a_dry_run_whose_attempt_is_ended_while_it_works_is_fenced",),
    ),
    Mutant(
        rule="K1",
        name="a sweep of what was dropped finds a corrupt ledger",
        path="reliability/transaction/maintain/sweep.py",
        old='        if connection.first("mirrored_topology", topology=topology) is not None:\n',
        new="        if True:\n",
        tests=(
            "tests/integration/test_commit.py"
            "::test_a_sweep_of_a_topology_that_is_dropped_meanwhile_finds_nothing",
        ),
    ),
    Mutant(
        rule="R3",
        name="a run that works for long seems silent",
        path="reliability/transaction/run.py",
        old="                    renew(own, task.request_id)\n",
        new="                    pass\n",
        tests=(REQUESTS + "test_a_run_at_work_for_longer_than_its_lease_is_not_given_up",),
    ),
    Mutant(
        rule="R3",
        name="a silent run keeps its attempt",
        path="reliability/transaction/maintain/sweep.py",
        old='tx.run("end_attempt_of_request", request_id=request_id, reason=reason)',
        new="pass",
        tests=(
            REQUESTS
            + "test_a_silent_runs_request_is_given_up_by_any_sweep_and_reopened_by_its_contact",
        ),
    ),
    Mutant(
        rule="R1",
        name="a task that a clear has added opens a request",
        path="reliability/core/request.py",
        old="latest.downstream_has_worked and not now.is_new",
        new="latest.downstream_has_worked",
        tests=(
            "tests/unit/test_clear_or_retry.py::"
            "test_a_new_task_that_comes_after_a_later_one_was_not_cleared",
        ),
    ),
    Mutant(
        rule="R3",
        name="close does not wait for the commit of its txid",
        path="plugins/reliability_airflow/tasks.py",
        old="        self._wait_for_commit(context)\n",
        new="",
        tests=(DEFERRALS + "test_close_waits_for_the_commit_of_its_txid",),
    ),
    Mutant(
        rule="R3",
        name="close waits for what Airflow never creates",
        path="plugins/reliability_airflow/context.py",
        old="states(map_index) or states(None)",
        new="states(map_index) or [None]",
        tests=(DEFERRALS + "test_close_waits_for_the_commit_of_its_txid",),
    ),
    Mutant(
        rule="R3",
        name="close does not wait for what Airflow has yet to create",
        path="plugins/reliability_airflow/context.py",
        old="states(map_index) or states(None)",
        new="states(map_index)",
        tests=(DEFERRALS + "test_close_waits_for_the_commit_of_its_txid",),
    ),
    Mutant(
        rule="R5",
        name="a scheduler that stands still counts as one that is not told of",
        path="plugins/reliability_airflow/executor_events.py",
        old="                told_at = time.monotonic()\n",
        new="",
        tests=(
            DEFERRALS
            + "test_a_reading_without_an_answer_after_a_long_stall_does_not_fire_a_trigger",
        ),
    ),
    Mutant(
        rule="R5",
        name="one heartbeat is enough",
        path="plugins/reliability_airflow/executor_events.py",
        old="_OLD_AND_TWO_NEW = 3",
        new="_OLD_AND_TWO_NEW = 2",
        tests=(
            DEFERRALS + "test_a_trigger_fires_after_two_new_heartbeats_of_the_scheduler",
            DEFERRALS + "test_a_trigger_does_not_fire_beside_a_scheduler_that_stands_still",
        ),
    ),
    Mutant(
        rule="R5",
        name="a trigger fires as soon as its wait is over",
        path="plugins/reliability_airflow/triggers.py",
        old="await asyncio.gather(heartbeats.events_are_processed(), self.wait())",
        new="await self.wait()",
        tests=(DEFERRALS + "test_a_trigger_does_not_fire_beside_a_scheduler_that_stands_still",),
    ),
    Mutant(
        rule="R5",
        name="no heartbeat is a heartbeat",
        path="plugins/reliability_airflow/executor_events.py",
        old=' ["latest_scheduler_heartbeat"]) is not None:'.strip(),
        new='["latest_scheduler_heartbeat"]) != "":',
        tests=(DEFERRALS + "test_a_heartbeat_is_what_a_server_tells",),
    ),
    Mutant(
        rule="E3",
        name="a run does not let the one before emit first",
        path="plugins/reliability_airflow/tasks.py",
        old='if before is None or before.state != "running":',
        new="if True:",
        tests=(WAITING + "test_a_run_lets_the_run_of_the_interval_before_emit_first",),
    ),
    Mutant(
        rule="R4",
        name="a step is claimed in any attempt",
        path="reliability/transaction/process/begin.py",
        old="    grant = grant_of(topology.name, seen)\n    try:\n",
        new="    seen, _, _ = read_txid(\n"
        "        connection, topology.name, seen.txid, task.request_id, topology.states\n    )\n"
        "    grant = grant_of(topology.name, seen)\n    try:\n",
        tests=(REQUESTS + "test_a_step_is_claimed_in_the_attempt_for_which_it_was_decided",),
    ),
    Mutant(
        rule="R4",
        name="a commit task runs no step",
        path="reliability/core/definitions.py",
        old="*(names if step is None else [step])",
        new="*([] if step is None else [step])",
        tests=(REQUESTS + "test_a_commit_task_whose_attempt_fell_gets_everything_done",),
        in_histories=True,
    ),
    Mutant(
        rule="E1",
        name="emit does not compare its plan under the lock",
        path="reliability/transaction/emit/emission.py",
        old="                if not is_allocated(tx, self.name, items):\n",
        new="                if True:\n",
        tests=(EMISSION + "test_an_item_that_another_run_takes_meanwhile_has_one_txid",),
    ),
    Mutant(
        rule="E1",
        name="what was given up is free before it is taken out of the states",
        path="sql/queries/emission.sql",
        old="SELECT 0, range_agg(part - refrozen_part)::text",
        new="SELECT 0, range_agg(part * '{}'::int8multirange)::text",
        tests=(
            "tests/integration/test_spouts.py::"
            "test_rows_that_a_batch_gave_up_and_that_come_back_count_once",
        ),
    ),
    Mutant(
        rule="E1",
        name="the files of a table are read as any others",
        path="reliability/spouts/file.py",
        old="        check_no_table(new)\n",
        new="",
        tests=("tests/unit/test_spout_plans.py::test_a_table_is_found_before_anything_is_emitted",),
    ),
    Mutant(
        rule="E1",
        name="another spelling is another file",
        path="reliability/spouts/filesystem.py",
        old="        paths.add(os.path.join(identities[parent], name))\n",
        new="        paths.add(listed)\n",
        tests=(
            "tests/unit/test_names.py::test_a_file_has_one_name_however_the_pattern_is_spelled",
        ),
    ),
    Mutant(
        rule="E2",
        name="what is behind a blocked txid of another run fails",
        path="reliability/core/coordinator.py",
        old="(request.dag_id, request.run_id) in blocked.requested_by:",
        new="blocked.requested_by:",
        tests=(EMIT + "test_what_is_emitted_behind_a_blocked_txid_waits_for_it",),
    ),
    Mutant(
        rule="E2",
        name="a wait behind a blocked txid never ends",
        path="sql/queries/emission.sql",
        old="           < clock_timestamp() AS is_overdue",
        new="           < '-infinity' AS is_overdue",
        tests=(EMIT + "test_a_wait_behind_a_blocked_txid_ends_after_the_topologys_timeout",),
    ),
    Mutant(
        rule="E3",
        name="txids have gaps",
        path="sql/queries/emission.sql",
        old="SET next_txid = next_txid + %(count)s",
        new="SET next_txid = next_txid + %(count)s + 1",
        tests=(EMIT + "test_txids_follow_the_order_of_emission_without_a_gap",),
        in_histories=True,
    ),
    Mutant(
        rule="E4",
        name="a batch is cut as if there were no predecessor",
        path="reliability/transaction/process/opaque_batch.py",
        old="with_batches(frozen, before)",
        new="with_batches(frozen, [])",
        tests=(EMISSION + "test_an_opaque_batch_starts_where_its_predecessors_attempt_ended",),
        in_histories=True,
    ),
    Mutant(
        rule="E4",
        name="an attempt outlives the one that its batch starts from",
        path="sql/migrations/0004_attempt.sql",
        old="       AND predecessor_attempt = NEW.attempt_id\n",
        new="       AND predecessor_attempt <> NEW.attempt_id\n",
        tests=(EMISSION + "test_an_opaque_attempt_falls_with_the_one_that_its_batch_starts_from",),
        in_histories=True,
    ),
    Mutant(
        rule="E4",
        name="a batch commits behind any attempt",
        path="sql/queries/attempt.sql",
        old="          AND b.attempt_id = a.predecessor_attempt AND b.status IN",
        new="          AND b.status IN",
        tests=(EMISSION + "test_a_batch_that_names_an_attempt_which_did_not_commit_is_refused",),
    ),
    Mutant(
        rule="E4",
        name="a batch records nothing of the items of an unknown class",
        path="reliability/core/spout.py",
        old="    return {**written, _PART: asdict(ItemPart.of(item))}\n",
        new="    return written\n",
        tests=(OWN_SPOUT + "test_a_sweep_commits_an_opaque_batch_of_items_that_it_does_not_know",),
    ),
    Mutant(
        rule="E5",
        name="an untimed spout's run that comes again emits more",
        path="reliability/transaction/emit/emission.py",
        old="        if self.interval is None and has_own:\n",
        new="        if self.interval is not None and has_own:\n",
        tests=(EMISSION + "test_an_untimed_spout_emits_nothing_new_for_a_run_that_comes_again",),
    ),
    Mutant(
        rule="E6",
        name="the seal does not look at the source",
        path="reliability/transaction/process/seal.py",
        old="    verify_source(databases.coordinator, grant, topology.spout, meta)\n",
        new="",
        tests=(EMISSION + "test_a_source_that_changed_while_spark_read_it_fails_the_attempt",),
    ),
    Mutant(
        rule="E6",
        name="what changed under a frozen batch is tried again",
        path="reliability/transaction/process/attempt_messages.py",
        old='        if row["is_frozen"]:\n',
        new="        if False:\n",
        tests=(OPAQUE + "test_what_changes_once_its_txid_has_committed_is_a_persons_to_mend",),
    ),
    Mutant(
        rule="E7",
        name="a failed emission is not recorded",
        path="reliability/transaction/emit/emission.py",
        old="        _record_failure(connection, topology, run, error)\n",
        new="",
        tests=(INTERVALS + "test_what_never_came_is_seen",),
    ),
    Mutant(
        rule="E7",
        name="a try that was given up undoes a success",
        path="sql/queries/interval.sql",
        old=" AND status <> 'EMITTED'",
        new="",
        tests=(INTERVALS + "test_an_emission_is_recorded_as_it_ended",),
    ),
    Mutant(
        rule="E8",
        name="ignore reads a wider type",
        path="reliability/spouts/parquet.py",
        old="        if common is None or (common != other and not self.keeps):\n",
        new="        if common is None:\n",
        tests=(
            DRIFT + "test_a_wider_type_widens_the_column_or_is_refused",
            DRIFT + "test_nothing_is_allocated_for_a_file_that_a_policy_refuses",
        ),
    ),
    Mutant(
        rule="E8",
        name="a column in another case is another column",
        path="reliability/spouts/parquet.py",
        old="self.spelled.get(name.lower())",
        new="self.spelled.get(name)",
        tests=(DRIFT + "test_a_name_in_another_case_is_refused",),
    ),
    Mutant(
        rule="E8",
        name="a double holds each bigint",
        path="reliability/core/types.py",
        old='"double": frozenset({"double", ',
        new='"double": frozenset({"double", "bigint", ',
        tests=(
            DRIFT + "test_types_without_an_exact_common_one_are_refused",
            DRIFT + "test_what_is_cast_to_a_common_type_and_back_is_the_same",
        ),
    ),
    Mutant(
        rule="E8",
        name="the files of a batch are read by the columns of one",
        path="reliability/spouts/parquet.py",
        old="        alike.setdefault(item.columns, []).append(item)\n",
        new="        alike.setdefault(next(iter(alike), item.columns), []).append(item)\n",
        tests=(DRIFT + "test_a_batch_mixes_old_and_new_files_and_pieces_of_them",),
    ),
    Mutant(
        rule="E9",
        name="a run that names txids asks for what has not committed",
        path="reliability/transaction/emit/requests.py",
        old='    if missing := sorted(set(txids) - {row["txid"] for row in committed}):\n',
        new='    if missing := sorted(set(txids[:1]) - {row["txid"] for row in committed}):\n',
        tests=(
            EMIT
            + "test_what_has_not_committed_or_was_never_emitted_is_named_and_nothing_is_asked_for",
        ),
    ),
    Mutant(
        rule="E9",
        name="a run that only replays takes a scheduled run's place",
        path="plugins/reliability_airflow/context.py",
        old="    if replayed is not None and logical_date in (interval.start, interval.end):\n",
        new="    if replayed is not None and logical_date == interval.end:\n",
        tests=(
            "tests/dags/test_data_intervals.py"
            "::test_a_run_that_only_replays_has_no_place_in_the_schedule",
        ),
    ),
    Mutant(
        rule="A1",
        name="an ack without the nonce counts",
        path="sql/migrations/0005_acker.sql",
        old="AND nonce = p_nonce AND status = 'PROCESSING';",
        new="AND status = 'PROCESSING';",
        tests=(ATTEMPTS + "test_the_same_attempt_id_with_another_nonce_is_somebody_else",),
    ),
    Mutant(
        rule="A1",
        name="a restore goes unnoticed",
        path="reliability/transaction/topology/server.py",
        old='timeline["now"] is None or timeline["now"] == timeline["known"]',
        new='timeline["now"] is None or timeline["now"] != timeline["known"]',
        tests=(ATTEMPTS + "test_a_restored_server_fences_every_live_attempt",),
    ),
    Mutant(
        rule="A1",
        name="the id of an ended attempt is granted again",
        path="sql/queries/attempt.sql",
        old="       (SELECT max(n.attempt_id) FROM reliability.attempt n\n",
        new="       (SELECT max(n.attempt_id) FILTER (WHERE n.ended_at IS NULL)"
        " FROM reliability.attempt n\n",
        tests=(ATTEMPTS + "test_attempt_ids_rise_by_one_and_are_never_used_again",),
        in_histories=True,
    ),
    Mutant(
        rule="A2",
        name="a Spark task is not fenced",
        path="sql/migrations/0005_acker.sql",
        old="AND nonce = p_nonce AND status = 'PROCESSING';",
        new="AND nonce = p_nonce AND status <> 'COMMITTED';",
        tests=(ATTEMPTS + "test_a_zombie_in_mid_copy_leaves_nothing",),
        in_histories=True,
    ),
    Mutant(
        rule="A2",
        name="the fence comes before the COPY",
        path="reliability/spark/stage/stage_task.py",
        old="""\
                    tx.copy(self.copy, rows)
                    self._acknowledge(tx, partition, rows)
""",
        new="""\
                    tx.run("renew_lease", **self.grant)
                    tx.copy(self.copy, rows)
                    self._acknowledge(tx, partition, rows)
""",
        tests=(ATTEMPTS + "test_a_stalled_copy_holds_up_nobody_who_fences_it",),
    ),
    Mutant(
        rule="A3",
        name="the topology is locked FOR UPDATE",
        path="sql/queries/topology.sql",
        old="FOR NO KEY UPDATE;",
        new="FOR UPDATE;",
        tests=(ATTEMPTS + "test_what_refers_to_the_topology_does_not_wait_for_who_holds_it",),
    ),
    Mutant(
        rule="A3",
        name="who holds an attempt's row is left alone",
        path="reliability/transaction/process/begin.py",
        old="        _end_holders(connection, task)\n        raise\n",
        new="        raise\n",
        tests=(ATTEMPTS + "test_who_holds_the_topology_lets_go_of_an_attempt_row_it_cannot_get",),
    ),
    Mutant(
        rule="A4",
        name="sessions of ended attempts stay",
        path="reliability/transaction/maintain/sweep.py",
        old="    end_sessions_of(connection, topology, attempt)\n",
        new="",
        tests=(
            ATTEMPTS + "test_the_session_of_an_ended_attempt_is_ended_when_its_rows_are_cleaned",
        ),
    ),
    Mutant(
        rule="A5",
        name="acks are counted, not looked at",
        path="reliability/core/acker.py",
        old="if sink.acked_partitions != tuple(range(sink.partitions)):",
        new="if len(sink.acked_partitions) != sink.partitions:",
        tests=(ATTEMPTS + "test_the_acks_must_be_exactly_the_declared_partitions",),
    ),
    Mutant(
        rule="A5",
        name="more acks than declared are welcome",
        path="reliability/core/acker.py",
        old="if sink.acked_partitions != tuple(range(sink.partitions)):",
        new="if sink.acked_partitions[: sink.partitions] != tuple(range(sink.partitions)):",
        tests=(ATTEMPTS + "test_the_acks_must_be_exactly_the_declared_partitions",),
        in_histories=True,
    ),
    Mutant(
        rule="A5",
        name="another write action is taken for a copy of the first",
        path="reliability/spark/stage/stage_task.py",
        old='        if ack["write_id"] != self.write_id:\n',
        new='        if ack["write_id"] == "":\n',
        tests=(ATTEMPTS + "test_another_write_action_of_a_sink_is_refused",),
    ),
    Mutant(
        rule="A6",
        name="an ack counts while the attempt is sealed",
        path="sql/migrations/0005_acker.sql",
        old="AND nonce = p_nonce AND status = 'PROCESSING';",
        new="AND nonce = p_nonce AND status IN ('PROCESSING', 'SEALING');",
        tests=(ATTEMPTS + "test_nothing_acks_while_the_attempt_is_sealed",),
        in_histories=True,
    ),
    Mutant(
        rule="A6",
        name="what was fenced while it was sealed becomes PROCESSED",
        path="sql/migrations/0005_acker.sql",
        old="       AND nonce = p_nonce AND status = 'SEALING';\n",
        new="       AND nonce = p_nonce AND status <> 'PROCESSING';\n",
        tests=(ATTEMPTS + "test_what_is_ended_while_it_is_sealed_stays_ended",),
        in_histories=True,
    ),
    Mutant(
        rule="A7",
        name="the lease counts from the start of the transaction",
        path="sql/migrations/0004_attempt.sql",
        old="           ELSE clock_timestamp() + a.lease END",
        new="           ELSE now() + a.lease END",
        tests=(ATTEMPTS + "test_a_lease_counts_from_the_moment_of_the_progress",),
    ),
    Mutant(
        rule="A7",
        name="no lease ever ends",
        path="sql/queries/attempt.sql",
        old="   AND lease_until < clock_timestamp()\n ORDER BY txid;",
        new="   AND lease_until < granted_at - interval '1 day'\n ORDER BY txid;",
        tests=(ATTEMPTS + "test_a_processed_attempt_waits_for_its_turn_as_long_as_it_takes",),
    ),
    Mutant(
        rule="A8",
        name="a PROCESSED attempt can be failed",
        path="sql/queries/attempt.sql",
        old="""\
       reason_code = %(reason_code)s, reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status IN ('PROCESSING', 'SEALING')
""",
        new="""\
       reason_code = %(reason_code)s, reason = %(reason)s
 WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
   AND nonce = %(nonce)s AND status IN ('PROCESSING', 'SEALING', 'PROCESSED')
""",
        tests=(ATTEMPTS + "test_what_is_sealed_or_committed_is_out_of_reach",),
        in_histories=True,
    ),
    Mutant(
        rule="A9",
        name="steps share the cache and the views",
        path="reliability/spark/warm_engine.py",
        old='getattr(jvm, "org.apache.spark.sql.classic.SparkSession")(self._context, {})',
        new="jvm.SparkSession.builder().getOrCreate().newSession()",
        tests=(WARM + "test_two_steps_at_once_have_their_own_code_settings_cache_and_views",),
    ),
    Mutant(
        rule="A9",
        name="a Python worker is used again",
        path="reliability/spark/warm_engine.py",
        old='conf.set("spark.python.worker.reuse", "false")',
        new='conf.set("spark.python.worker.reuse", "true")',
        tests=(WARM + "test_a_step_runs_the_code_that_the_folder_has_now",),
    ),
    Mutant(
        rule="A9",
        name="a driver cancels the jobs of all steps",
        path="reliability/spark/renew_lease.py",
        old="self._spark.interruptAll()",
        new="self._spark.sparkContext.cancelAllJobs()",
        tests=(WARM + "test_a_driver_that_finds_its_attempt_ended_cancels_its_own_jobs_only",),
    ),
    Mutant(
        rule="A9",
        name="the jobs of a killed driver go on",
        path="reliability/spark/warm_engine.py",
        old="            self._context.cancelJobGroupAndFutureJobs(self._session.sessionUUID())\n"
        "            self._session.interruptAll()\n",
        new="",
        tests=(WARM + "test_the_jobs_of_a_driver_that_was_killed_are_cancelled",),
    ),
    Mutant(
        rule="C1",
        name="nobody locks the topology",
        path="sql/queries/topology.sql",
        old="  FROM reliability.topology WHERE topology = %(topology)s FOR NO KEY UPDATE;",
        new="  FROM reliability.topology WHERE topology = %(topology)s;",
        tests=(COMMITS + "test_what_is_read_under_the_lock_is_read_after_the_wait",),
    ),
    Mutant(
        rule="C1",
        name="what is read under the lock is from before the wait",
        path="sql/queries/session.sql",
        old="BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;",
        new="BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE;",
        tests=(COMMITS + "test_what_is_read_under_the_lock_is_read_after_the_wait",),
    ),
    Mutant(
        rule="C2",
        name="who is processed commits, whatever its position",
        path="reliability/core/plan.py",
        old="[due for due in self.processed if due.txid < self.curr_txid]",
        new="list(self.processed)",
        tests=(COMMITS + "test_position_decides_and_every_change_takes_the_next_c",),
        in_histories=True,
    ),
    Mutant(
        rule="C2",
        name="a participant applies what it has",
        path="reliability/core/checkpoint.py",
        old="    if last >= wanted:\n",
        new="    if last > wanted:\n",
        tests=(
            "tests/unit/test_checkpoint_decisions.py::test_a_participant_applies_c_iff_its_last_is_c_minus_1",
        ),
    ),
    Mutant(
        rule="C3",
        name="a row that was passed over is not missed",
        path="sql/migrations/0008_commit.sql",
        old="    IF p_keys <> p_applied THEN\n",
        new="    IF p_keys < p_applied THEN\n",
        tests=(COMMITS + "test_a_row_that_is_not_older_than_the_txid_stops_the_commit",),
    ),
    Mutant(
        rule="C3",
        name="a state takes any c",
        path="sql/migrations/0008_commit.sql",
        old="AND state = p_state AND commit_number = p_commit_number - 1;\n",
        new="AND state = p_state AND commit_number < p_commit_number + 1;\n",
        tests=(COMMITS + "test_a_state_that_has_the_commit_number_already_is_not_changed_again",),
    ),
    Mutant(
        rule="C4",
        name="the definition of a state may be another",
        path="reliability/transaction/topology/declare.py",
        old='    if row is not None and row["definition_digest"] != state.digest():\n',
        new='    if row is not None and row["definition_digest"] == "":\n',
        tests=(COMMITS + "test_an_attempt_is_not_granted_for_other_states_than_the_ledgers",),
    ),
    Mutant(
        rule="C9",
        name="compaction passes a txid that counts an excluded item",
        path="sql/queries/history.sql",
        old="topology = %(topology)s AND is_excluded <> is_left_out",
        new="false",
        tests=(LEFT_OUT + "test_compaction_waits_for_the_replay_that_takes_an_excluded_item_out",),
    ),
    Mutant(
        rule="C10",
        name="the attempt of a txid that waits to commit as empty is fenced",
        path="reliability/transaction/topology/redeclare.py",
        old="    _check_nothing_empty_waits(tx, topology)\n",
        new="",
        tests=(LEFT_OUT + "test_no_definition_changes_while_a_txid_waits_to_commit_as_empty",),
    ),
    Mutant(
        rule="C10",
        name="what was sealed for the old states stays live",
        path="sql/queries/topology.sql",
        old="   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED');\n\n-- live_attempts_of --",
        new="   AND status = 'SEALING';\n\n-- live_attempts_of --",
        tests=(CHANGED + "test_an_emission_takes_changed_states_while_nothing_has_committed",),
    ),
    Mutant(
        rule="C11",
        name="an attempt that has begun meanwhile goes on with the old shape",
        path="reliability/transaction/topology/alter.py",
        old='tx.one("live_attempts_of", topology=topology.name)["attempts"]:\n',
        new='tx.one("live_attempts_of", topology=topology.name)["attempts"] > 99:\n',
        tests=(ALTERED + "test_attempts_of_old_code_that_go_on_beginning_are_named",),
    ),
    Mutant(
        rule="C11",
        name="a driver stages with any code",
        path="reliability/spark/driver.py",
        old="        check_states(tx, topology)  # this host may have older code (C11)\n",
        new="        pass\n",
        tests=(ALTERED + "test_a_driver_with_older_code_than_its_task_stages_nothing",),
    ),
    Mutant(
        rule="C11",
        name="a count that is added is unknown in history",
        path="reliability/states/tables.py",
        old="""when_added=" DEFAULT 0" if column.is_count else "")""",
        new="""when_added="")""",
        tests=(
            ALTERED
            + "test_a_value_that_is_added_is_as_if_it_had_been_there_once_history_is_replayed",
        ),
    ),
    Mutant(
        rule="C11",
        name="a number may get more digits after the point",
        path="reliability/core/types.py",
        old="            and other.scale == one.scale\n",
        new="",
        tests=(
            "tests/integration/test_init_state.py::"
            "test_where_no_alter_table_leads_there_is_an_obstacle",
        ),
    ),
    Mutant(
        rule="C11",
        name="a state that is added has no headers of what has committed",
        path="sql/queries/alter.sql",
        old=" WHERE topology = %(topology)s AND committed_attempt IS NOT NULL;",
        new=" WHERE topology = %(topology)s AND committed_attempt < 0;",
        tests=(
            ALTERED + "test_a_state_beside_the_old_one_is_filled_by_replays_and_the_old_one_goes",
        ),
    ),
    Mutant(
        rule="C11",
        name="older code is not told that it is older",
        path="sql/queries/alter.sql",
        old="   AND digest_before IS NOT DISTINCT FROM %(digests)s::jsonb ->> state\n",
        new="   AND digest_after IS NOT DISTINCT FROM %(digests)s::jsonb ->> state\n",
        tests=(ALTERED + "test_older_code_beside_the_new_is_refused_and_told_so",),
    ),
    Mutant(
        rule="C5",
        name="the first of a refused group is to blame",
        path="reliability/transaction/commit/committer.py",
        old="            elif len(outcome.plan) > 1:\n",
        new="            elif len(outcome.plan) > 100:\n",
        tests=(COMMITS + "test_when_a_group_is_refused_only_the_guilty_txid_blocks",),
        in_histories=True,
    ),
    Mutant(
        rule="C5",
        name="who never groups commits keeps no checkpoint interval",
        path="reliability/core/plan.py",
        old="        if self.is_gathering and not is_alone:\n",
        new="        if self.is_gathering and self.groups_commits and not is_alone:\n",
        tests=(
            "tests/integration/test_commit.py"
            "::test_who_never_groups_commits_keeps_the_checkpoint_interval_too",
        ),
    ),
    Mutant(
        rule="C5",
        name="the checkpoint interval is over once a group was refused",
        path="reliability/core/plan.py",
        old="        is_alone = self.curr_txid <= one_by_one\n",
        new="        is_alone = one_by_one > 0\n",
        tests=(
            "tests/unit/test_checkpoint_decisions.py"
            "::test_only_the_txids_of_a_refused_group_are_tried_one_by_one_and_at_once",
        ),
    ),
    Mutant(
        rule="C6",
        name="a participant votes yes unseen",
        path="reliability/transaction/commit/participant.py",
        old="""\
                with rolled_back(self.connection) as tx:
                    return self._apply(tx, message, plan, patience)
""",
        new="                pass\n",
        tests=(COMMITS + "test_a_vote_runs_the_real_apply_so_that_all_commit_or_none",),
        in_histories=True,
    ),
    Mutant(
        rule="C6",
        name="a zombie lives on in the other database",
        path="reliability/transaction/topology/participants.py",
        old='    tx.run("fence_live_attempts", reason="a newer attempt was granted", **newer)\n',
        new="",
        tests=(COMMITS + "test_a_newer_attempt_fences_the_older_one_in_every_database",),
        in_histories=True,
    ),
    Mutant(
        rule="C6",
        name="a database keeps what the others have dropped",
        path="reliability/transaction/correct/rollback.py",
        old="            if refusal is not None:\n",
        new="            if False:\n",
        tests=(WAY_OUT + "test_what_was_decided_has_to_go_with_it",),
    ),
    Mutant(
        rule="C6",
        name="a database that lost more than what was dropped goes on",
        path="reliability/core/checkpoint.py",
        old="    if not first - message.dropped <= last <= first:\n",
        new="    if not last <= first:\n",
        tests=("tests/unit/test_checkpoint_decisions.py::test_who_may_lack_what_was_dropped",),
    ),
    Mutant(
        rule="C6",
        name="an opaque state gets what it could not undo",
        path="reliability/transaction/topology/lifecycle.py",
        old="groups_commits=topology.groups_commits",
        new="groups_commits=True",
        tests=(WAY_OUT + "test_a_declaration_says_whether_txids_share_a_commit",),
    ),
    Mutant(
        rule="C6",
        name="who drops it rolls back once more",
        path="reliability/transaction/commit/apply.py",
        old='    if change.dropped and tx.first("is_rolled_back", **change):\n',
        new="    if False:\n",
        tests=(WAY_OUT + "test_who_has_the_decided_commit_undoes_it_and_the_others_drop_it",),
    ),
    Mutant(
        rule="C6",
        name="a rollback drops what it has decided itself",
        path="reliability/transaction/commit/checkpoint_driver.py",
        old="message.commit_number != self._decided_before:",
        new="self._decided_before == -1:",
        tests=(WAY_OUT + "test_a_rollback_gives_way_to_nothing_that_it_has_decided_itself",),
    ),
    Mutant(
        rule="C7",
        name="a parked txid satisfies who asked for it",
        path="sql/migrations/0008_commit.sql",
        old="status = CASE WHEN a.verdict = 'PARKED' THEN 'PARKED' ELSE 'SATISFIED' END",
        new="status = 'SATISFIED'",
        tests=(HISTORY + "test_who_asks_for_a_parked_txid_before_its_turn_is_not_satisfied_by_it",),
    ),
    Mutant(
        rule="C7",
        name="who asked for a skipped txid is sent away",
        path="reliability/transaction/correct/park.py",
        old="    if verdict is EmptyVerdict.PARKED:\n",
        new="    if verdict:\n",
        tests=(HISTORY + "test_a_skipped_txid_satisfies_who_asked_for_it",),
    ),
    Mutant(
        rule="C7",
        name="an opaque txid that never had a batch gets none",
        path="sql/queries/correction.sql",
        old="coalesce(cut.batch_meta, '[]') END",
        new="cut.batch_meta END",
        tests=(OPAQUE + "test_a_txid_whose_source_is_gone_can_be_passed_over",),
    ),
    Mutant(
        rule="C8",
        name="a clear of a skipped txid opens a request like any other",
        path="reliability/transaction/emit/requests.py",
        old='is_skipped=facts["is_skipped"]',
        new="is_skipped=False",
        tests=(LEFT_OUT + "test_a_clear_of_a_skipped_txid_is_green_and_changes_nothing",),
    ),
    Mutant(
        rule="C8",
        name="a skipped txid is processed after a rollback",
        path="reliability/core/coordinator.py",
        old="    return snapshot.is_skipped and not snapshot.is_replay\n",
        new="    return False\n",
        tests=(LEFT_OUT + "test_a_skipped_txid_commits_as_empty_again_after_a_rollback",),
    ),
    Mutant(
        rule="C8",
        name="the empty attempt of an unskipped txid commits",
        path="reliability/transaction/correct/park.py",
        old="        if txid >= curr_txid:  # its empty attempt must not commit\n",
        new="        if False:\n",
        tests=(LEFT_OUT + "test_an_unskip_before_its_turn_ends_the_empty_attempt",),
    ),
    Mutant(
        rule="C9",
        name="an attempt reads excluded items",
        path="reliability/transaction/process/opaque_batch.py",
        old="    left_out = excluded_among(tx, topology.name, read.items) | also\n",
        new="    left_out = also\n",
        tests=(
            LEFT_OUT + "test_an_excluded_item_stays_out_of_replays_until_it_is_included",
            LEFT_OUT + "test_in_two_databases_an_excluded_item_is_out_of_both",
        ),
    ),
    Mutant(
        rule="C9",
        name="an excluded item is emitted",
        path="sql/queries/emission.sql",
        old=" WHERE topology = %(topology)s AND item = ANY(%(items)s) AND ended_at IS NULL;",
        new=" WHERE topology = %(topology)s AND item = ANY(%(items)s) AND false;",
        tests=(LEFT_OUT + "test_an_opaque_batch_is_cut_without_an_excluded_item",),
    ),
    Mutant(
        rule="H8",
        name="a rollback mends rows without a word",
        path="reliability/states/kinds/contribution.py",
        old="        if not by_hand.examples:\n",
        new="        if True:\n",
        tests=(
            BY_HAND + "test_a_rollback_says_what_it_overwrites_and_counts_its_own_effect_only",
            BY_HAND + "test_a_replay_that_recomputes_rows_says_what_it_overwrites",
        ),
    ),
    Mutant(
        rule="H9",
        name="wrong contributions repair a table",
        path="reliability/states/kinds/stored.py",
        old="        for wrong in wrong_headers(tx, self):\n",
        new="        for wrong in ():\n",
        tests=(BY_HAND + "test_contributions_that_are_wrong_themselves_repair_nothing",),
    ),
    Mutant(
        rule="H9",
        name="a repair leaves surplus rows",
        path="reliability/states/verify_table.py",
        old=" FULL JOIN (SELECT *, true AS",
        new=" LEFT JOIN (SELECT *, true AS",
        tests=(BY_HAND + "test_a_repair_brings_changed_missing_and_surplus_rows_back",),
    ),
    Mutant(
        rule="H10",
        name="an attempt's table is committed whatever its size is",
        path="reliability/states/attempt_table.py",
        old="present < sealed:",
        new="present < 0:",
        tests=(TABLES + "test_a_table_that_is_not_what_was_sealed_is_not_committed",),
    ),
    Mutant(
        rule="H10",
        name="the table of an attempt that cannot count stays",
        path="sql/queries/attempt_table.sql",
        old=" AND t.attempt_id = %(attempt_id)s\n ORDER BY t.table_id;",
        new=" AND t.attempt_id = -1\n ORDER BY t.table_id;",
        tests=(TABLES + "test_the_table_of_an_attempt_that_cannot_count_is_dropped_by_a_sweep",),
        in_histories=True,
    ),
    Mutant(
        rule="H10",
        name="merged rows stay in their table too",
        path="reliability/states/attempt_table.py",
        old="""\
    tx.run(tables.copy_attempt_table(tables.contribution))
    drop(tx, tables.attempt_table)
""",
        new="    tx.run(tables.copy_attempt_table(tables.contribution))\n",
        tests=(TABLES + "test_few_keys_of_many_rows_are_moved_to_the_others",),
    ),
    Mutant(
        rule="H10",
        name="merged rows are lost",
        path="reliability/states/attempt_table.py",
        old="    tx.run(tables.copy_attempt_table(tables.contribution))\n",
        new="",
        tests=(TABLES + "test_a_sweep_leaves_only_the_newest_tables",),
    ),
    Mutant(
        rule="H10",
        name="a replay with another contribution changes nothing",
        path="sql/queries/commit.sql",
        old="SELECT count(DISTINCT contribution_digest) = 1 AND",
        new="SELECT count(DISTINCT contribution_digest) >= 1 AND",
        tests=(TABLES + "test_a_replay_compares_rows_unless_it_stages_the_same",),
    ),
    Mutant(
        rule="H10",
        name="a replay trusts the digests of rows that were altered",
        path="sql/queries/commit.sql",
        old="AND t.txid = %(txid)s AND t.commit_number <= a.commit_number",
        new="AND t.txid = %(txid)s AND false",
        tests=(ALTERED + "test_a_replay_counts_the_appended_rows_that_get_a_dropped_value_back",),
    ),
    Mutant(
        rule="H8",
        name="a replay trusts the digests of rows that were changed by hand",
        path="reliability/states/kinds/append.py",
        old="        is_nothing = is_same and self.is_as_written(change)\n",
        new="        is_nothing = is_same\n",
        tests=(BY_HAND + "test_a_replay_of_appended_rows_names_what_was_changed_by_hand",),
    ),
    Mutant(
        rule="H10",
        name="a replay compares rows that nobody can have changed",
        path="reliability/states/kinds/append.py",
        old="        is_nothing = is_same and self.is_as_written(change)\n",
        new="        is_nothing = False\n",
        tests=(BY_HAND + "test_rows_that_nobody_can_have_changed_are_not_compared",),
    ),
    Mutant(
        rule="H11",
        name="a reader's function sees rows that do not count",
        path="reliability/states/tables.py",
        old='VIEW {target} WITH (security_barrier = true) AS"',
        new='VIEW {target} WITH (security_barrier = false) AS"',
        tests=(VIEWS + "test_a_reader_s_function_sees_no_row_that_does_not_count",),
    ),
    Mutant(
        rule="H11",
        name="a view shows every attempt of a committed txid",
        path="reliability/states/tables.py",
        old=' AND header.txid = staged._txid AND header.attempt_id = staged._attempt_id"',
        new=' AND header.txid = staged._txid"',
        tests=(VIEWS + "test_a_view_shows_one_attempt_of_a_txid",),
        in_histories=True,
    ),
    Mutant(
        rule="H11",
        name="a sweep drops a table that an older snapshot shows",
        path="reliability/transaction/maintain/sweep.py",
        old="LONGEST_SNAPSHOT_SECONDS = 3600.0",
        new="LONGEST_SNAPSHOT_SECONDS = 0.0",
        tests=(VIEWS + "test_an_older_snapshot_keeps_what_it_has_seen",),
    ),
    Mutant(
        rule="H11",
        name="a replay leaves the header with the replaced attempt",
        path="reliability/states/kinds/append.py",
        old="""\
        self.append_staged(change, sealed)
        change.one("move_contribution", **self.header(sealed.rows))
""",
        new="        self.append_staged(change, sealed)\n",
        tests=(VIEWS + "test_a_view_shows_one_attempt_of_a_txid",),
        in_histories=True,
    ),
    Mutant(
        rule="C12",
        name="the audits of a table are skipped",
        path="reliability/transaction/commit/apply.py",
        old='    audits = audit_tables(tx, topology, facts["audits"])\n',
        new="    audits = audit_tables(tx, topology, [])\n",
        tests=(
            AUDITS + "test_a_table_that_would_violate_an_audit_is_never_seen",
            AUDITS + "test_an_audit_runs_in_the_database_of_its_state",
        ),
    ),
    Mutant(
        rule="C12",
        name="a table is audited as it was before the commit",
        path="reliability/transaction/commit/apply.py",
        old="""\
        _commit(tx, states, plan)
    else:
        for change in plan:
            differences += _change(tx, states, change, observer)
    audits = audit_tables(tx, topology, facts["audits"])
""",
        new="""\
        audits = audit_tables(tx, topology, facts["audits"])
        _commit(tx, states, plan)
    else:
        audits = audit_tables(tx, topology, facts["audits"])
        for change in plan:
            differences += _change(tx, states, change, observer)
""",
        tests=(
            AUDITS + "test_a_table_that_would_violate_an_audit_is_never_seen",
            AUDITS + "test_of_a_group_only_the_txid_that_violates_is_refused",
        ),
    ),
    Mutant(
        rule="C12",
        name="the severity of an audit is ignored",
        path="reliability/core/audits.py",
        old="        return self.is_violated and self.severity is Severity.ERROR\n",
        new="        return self.is_violated\n",
        tests=(
            AUDITS + "test_a_warning_is_recorded_and_logged_in_one_line",
            AUDITS + "test_audits_that_hold_let_the_attempt_commit",
        ),
    ),
    Mutant(
        rule="C12",
        name="a contribution is audited by what has committed",
        path="reliability/states/audit_sql.py",
        old='_txid = {txid} AND _attempt_id = {attempt_id}")',
        new='_txid < {txid} AND _attempt_id = {attempt_id}")',
        tests=(
            AUDITS + "test_only_what_this_attempt_has_staged_is_audited",
            AUDITS + "test_a_contribution_that_violates_audits_fails_its_attempt",
        ),
    ),
    Mutant(
        rule="C12",
        name="the rows that other attempts have staged are audited too",
        path="reliability/states/audit_sql.py",
        old='_txid = {txid} AND _attempt_id = {attempt_id}")',
        new='{txid} > 0 AND {attempt_id} >= 0")',
        tests=(AUDITS + "test_only_what_this_attempt_has_staged_is_audited",),
    ),
    Mutant(
        rule="C12",
        name="an audit refuses what is decided",
        path="reliability/transaction/commit/participant.py",
        old="            if message.action is CheckpointAction.PREPARE:\n                refuse",
        new="            if message.action:\n                refuse",
        tests=(AUDITS + "test_what_is_decided_is_not_refused_by_an_audit",),
    ),
    Mutant(
        rule="C12",
        name="the SQL of an audit may write",
        path="sql/migrations/0007_audit.sql",
        old="    PERFORM set_config('transaction_read_only', 'on', true);\n",
        new="",
        tests=(AUDITS + "test_sql_that_fails_or_writes_fails_the_attempt_and_changes_nothing",),
    ),
    Mutant(
        rule="C12",
        name="the SQL of an audit may be several statements",
        path="sql/migrations/0007_audit.sql",
        old=") LANGUAGE plpgsql STABLE\n",
        new=") LANGUAGE plpgsql\n",
        tests=(AUDITS + "test_sql_that_is_more_than_one_statement_commits_nothing",),
    ),
    Mutant(
        rule="H1",
        name="the header stays with the replaced attempt",
        path="reliability/states/kinds/contribution.py",
        old="""\
        change.one("move_contribution", **self.header(sealed.rows))
        self._remember""",
        new="        self._remember",
        tests=(HISTORY + "test_a_replay_moves_the_pointer_and_the_contribution_together",),
    ),
    Mutant(
        rule="H2",
        name="rows that are gone are taken for zero",
        path="reliability/states/kinds/stored.py",
        old='if header["attempt_id"] != key.replaced_attempt or header["rows"] != taken_out:',
        new="if False:",
        tests=(HISTORY + "test_rows_that_are_gone_are_never_taken_for_zero",),
    ),
    Mutant(
        rule="H3",
        name="a float is subtracted",
        path="reliability/core/aggregators.py",
        old="        if is_exact(type_)\n",
        new="        if type_\n",
        tests=(HISTORY + "test_a_float_sum_is_recomputed_and_never_subtracted",),
    ),
    Mutant(
        rule="H3",
        name="a sum is exchanged in its own type",
        path="reliability/core/column.py",
        old="CAST({{target.{name}}} AS numeric)",
        new="{{target.{name}}}",
        tests=(SUMS + "test_what_is_left_without_the_old_part_need_not_fit",),
    ),
    Mutant(
        rule="H3",
        name="Spark adds bigints as bigints",
        path="reliability/spark/stage/sums.py",
        old='            is_bigint = type_ == "bigint"\n',
        new="            is_bigint = False\n",
        tests=(
            "tests/integration/test_numbers.py::test_what_adds_up_to_a_number_that_fits_is_right",
        ),
    ),
    Mutant(
        rule="H2",
        name="what does not fit into one row is folded",
        path="reliability/states/compact_history.py",
        old="WHERE _count > 1 AND _fit",
        new="WHERE _count > 1",
        tests=(SUMS + "test_what_does_not_fit_into_one_row_is_folded_when_it_does",),
    ),
    Mutant(
        rule="H3",
        name="a key stays when its last row went",
        path="reliability/states/kinds/contribution.py",
        old="coalesce(swapped._rows, 0) = 0",
        new="coalesce(swapped._rows, 0) < 0",
        tests=(HISTORY + "test_a_key_goes_with_its_last_row_and_a_sum_turns_null_again",),
    ),
    Mutant(
        rule="H4",
        name="nothing holds what was rolled back",
        path="reliability/transaction/commit/apply.py",
        old='            tx.run("hold_later_txids", **change)\n',
        new="",
        tests=(HISTORY + "test_a_rollback_fences_what_is_processed_and_holds_the_txids",),
        in_histories=True,
    ),
    Mutant(
        rule="H4",
        name="what is processed survives a rollback",
        path="sql/queries/commit.sql",
        old="   AND status IN ('PROCESSING', 'SEALING', 'PROCESSED', 'COMMITTED');",
        new="   AND status IN ('COMMITTED');",
        tests=(HISTORY + "test_a_rollback_fences_what_is_processed_and_holds_the_txids",),
        in_histories=True,
    ),
    Mutant(
        rule="H4",
        name="the rows keep the txid that was rolled back",
        path="reliability/states/kinds/contribution.py",
        old='            also="max({staged._txid})",\n',
        new='            also="max({staged._txid}) + 9",\n',
        tests=(
            HISTORY
            + "test_a_rollback_sets_each_rows_txid_back_so_that_the_next_commit_finds_it_older",
        ),
    ),
    Mutant(
        rule="H4",
        name="a rolled back txid satisfies its run",
        path="reliability/transaction/commit/apply.py",
        old='            tx.run("close_later_requests", **change)\n',
        new="",
        tests=(HISTORY + "test_a_rollback_closes_every_request_of_the_later_txids",),
        in_histories=True,
    ),
    Mutant(
        rule="H4",
        name="a rollback closes dry runs that have ended",
        path="sql/queries/commit.sql",
        old="   AND NOT (is_dry_run AND status = 'SATISFIED');",
        new=";",
        tests=(CLI + "test_what_was_done_before_a_rollback_still_reads_as_done",),
    ),
    Mutant(
        rule="E4",
        name="an attempt that may commit reads what is not frozen",
        path="reliability/transaction/process/begin.py",
        old="        if exchanged is not None and not request.is_dry_run:\n",
        new="        if False:\n",
        tests=("tests/replay/test_refreeze.py::test_only_a_dry_run_reads_what_is_not_frozen",),
    ),
    Mutant(
        rule="V7",
        name="a new session begins with the host's settings",
        path="reliability/spark/process.py",
        old="    pin_new_sessions(spark)\n",
        new="",
        tests=(SPARK_SESSIONS + "test_a_session_that_the_function_makes_has_the_same_settings",),
    ),
    Mutant(
        rule="V7",
        name="a frame of another session follows that session's settings",
        path="reliability/spark/frames/jvm.py",
        old="    return Plan(Plan.of(frame).java, spark).frame()\n",
        new="    return frame\n",
        tests=(
            SPARK_SESSIONS + "test_what_is_made_of_the_frames_follows_no_setting_of_the_function",
        ),
    ),
    Mutant(
        rule="V9",
        name="a dry run of a refreeze reads corrections of what is frozen",
        path="sql/queries/quarantine.sql",
        old="   AND NOT a.as_refrozen\n",
        new="",
        tests=(QUARANTINE + "test_a_refreeze_ends_corrections_and_a_dry_run_of_it_reads_none",),
    ),
    Mutant(
        rule="H5",
        name="a state that cannot go back is rolled back",
        path="reliability/core/state.py",
        old="        if to_txid == last - 1:\n",
        new="        if True:\n",
        tests=(HISTORY + "test_all_states_are_rolled_back_or_none",),
    ),
    Mutant(
        rule="H5",
        name="a state that keeps one step replays an older txid",
        path="reliability/core/state.py",
        old="        if txid == last:\n",
        new="        if True:\n",
        tests=(HISTORY + "test_all_states_are_rolled_back_or_none",),
    ),
    Mutant(
        rule="H6",
        name="of two equal rows the earlier txid wins",
        path="reliability/core/aggregators.py",
        old='f"{{staged._txid}} {direction}"',
        new="f\"{{staged._txid}} {'ASC' if direction == 'DESC' else 'DESC'}\"",
        tests=(HISTORY + "test_of_two_rows_that_are_equal_by_the_order_the_later_txid_wins",),
    ),
    Mutant(
        rule="H6",
        name="staged rows with NULL in a later column of the order win",
        path="reliability/core/aggregators.py",
        old="        terms.insert(0, ",
        new="        ({}).setdefault(0, ",
        tests=(STATES + "test_null_in_a_later_column_of_an_order_loses_to_a_row_without_null",),
    ),
    Mutant(
        rule="H6",
        name="an added row with NULL in a later column of the order wins",
        path="reliability/core/aggregators.py",
        old="    if len(keys) == 1:\n",
        new="    if True:\n",
        tests=(STATES + "test_null_in_a_later_column_of_an_order_loses_to_a_row_without_null",),
    ),
    Mutant(
        rule="H6",
        name="Spark takes the last row with NULL in a later column of the order",
        path="reliability/core/aggregators.py",
        old="""f"isnotnull({term})" for term""",
        new="""f"{term} = {term} or true" for term""",
        tests=(REDUCE + "test_spark_and_postgres_agree_who_wins_though_every_order_has_null",),
    ),
    Mutant(
        rule="H6",
        name="Spark takes the first row with NULL in a later column of the order",
        path="reliability/core/aggregators.py",
        old="""f"isnull({term})" for term""",
        new="""f"{term} is null and false" for term""",
        tests=(REDUCE + "test_spark_and_postgres_agree_who_wins_though_every_order_has_null",),
    ),
    Mutant(
        rule="H7",
        name="a table can belong to two states",
        path="reliability/transaction/topology/declare.py",
        old="    if owner is not None:\n",
        new="    if False:\n",
        tests=(HISTORY + "test_a_table_belongs_to_one_state_of_one_topology",),
    ),
    Mutant(
        rule="S1",
        name="the zone is the role's",
        path="sql/queries/session.sql",
        old="SET LOCAL TimeZone = 'UTC';\n",
        new="",
        tests=(
            SESSIONS + "test_what_is_set_in_one_transaction_is_gone_in_the_next",
            SESSIONS + "test_a_setting_is_what_the_package_relies_on_whatever_the_role_has",
        ),
    ),
    Mutant(
        rule="S1",
        name="texts go in the client's encoding",
        path="reliability/ledger/connection.py",
        old='                client_encoding="UTF8",\n',
        new="",
        tests=(SESSIONS + "test_a_reason_in_any_script_is_kept_where_the_client_says_latin1",),
    ),
    Mutant(
        rule="S2",
        name="any encoding will do",
        path="reliability/ledger/migrations.py",
        old='if row["encoding"] not in ENCODINGS:',
        new='if row["encoding"] is None:',
        tests=(SESSIONS + "test_a_database_in_which_texts_have_another_order_is_refused",),
    ),
    Mutant(
        rule="S3",
        name="a ledger that is away costs a retry",
        path="plugins/reliability_airflow/waiting.py",
        old="            except NOT_ANSWERING as error:\n",
        new="            except () as error:\n",
        tests=(WAITING + "test_a_task_leaves_its_slot_while_the_ledger_is_away",),
    ),
    Mutant(
        rule="C5",
        name="a row that is too large is an outage",
        path="reliability/core/sqlstate.py",
        old="for code in codes.split()}\n",
        new="for code in codes.split()} | {'54': Kind.OUTAGE}\n",
        tests=(
            "tests/unit/test_sqlstates.py::test_only_these_are",
            REFUSALS + "test_a_value_too_large_for_an_index_of_the_users_own_fails_its_txid_alone",
        ),
    ),
    Mutant(
        rule="S4",
        name="a schema that others may create in is searched",
        path="sql/queries/session.sql",
        old="SET LOCAL search_path = pg_catalog, pg_temp;\n",
        new="SET LOCAL search_path = public;\n",
        tests=(SESSIONS + "test_a_better_fitting_function_of_a_shared_schema_never_runs",),
    ),
    Mutant(
        rule="S4",
        name="temporary tables are found before Postgres's own",
        path="sql/queries/session.sql",
        old="SET LOCAL search_path = pg_catalog, pg_temp;\n",
        new="SET LOCAL search_path = pg_catalog;\n",
        tests=(SESSIONS + "test_a_temporary_table_takes_no_name_of_postgres",),
    ),
    Mutant(
        rule="S5",
        name="a refused login is final at once",
        path="plugins/reliability_airflow/waiting.py",
        old="            except NOT_ANSWERING as error:\n",
        new="            except NOT_ANSWERING[:2] as error:\n",
        tests=(WAITING + "test_a_task_waits_for_credentials_that_are_renewed",),
    ),
    Mutant(
        rule="S5",
        name="a refused login is waited for like an outage",
        path="plugins/reliability_airflow/waiting.py",
        old='        return self.carried("login", error, LOGIN_PATIENCE)\n',
        new='        return self.carried("login", error)\n',
        tests=(WAITING + "test_a_task_waits_for_credentials_that_are_renewed",),
    ),
    Mutant(
        rule="S5",
        name="an expired token is an outage",
        path="reliability/ledger/failures.py",
        old='    r"authentication failed|',
        new='    r"password authentication failed|',
        tests=("tests/unit/test_sqlstates.py::test_a_refused_login_is_no_outage",),
    ),
    Mutant(
        rule="S6",
        name="rights are not checked before Spark runs",
        path="reliability/transaction/process/begin.py",
        old="    check_rights(tx, [stored_state(topology.name, state) for state in states])\n",
        new="",
        tests=(REFUSALS + "test_a_right_that_is_missing_is_found_before_spark_runs",),
    ),
    Mutant(
        rule="S6",
        name="what prevents an attempt is in the task's log only",
        path="reliability/transaction/run.py",
        old="            record_problem(connection, request_id, error)\n",
        new="            pass\n",
        tests=(
            REFUSALS + "test_a_missing_spark_connection_is_told_by_settle_status_show_and_doctor",
        ),
    ),
    Mutant(
        rule="K1",
        name="a free place wakes every waiting replay",
        path="reliability/core/standing.py",
        old="        return set(sorted(set(waiting) - called)[: max(room, 0)])\n",
        new="        return set(waiting) if room > 0 else set()\n",
        tests=(WAITING + "test_a_free_place_wakes_the_lowest_waiting_replay_alone",),
    ),
    Mutant(
        rule="K1",
        name="who looks is not told why a txid waits",
        path="reliability/transaction/inspect/intervals.py",
        old='    wait = why_waits(standing.snapshot(row["txid"]))\n',
        new="    wait = None\n",
        tests=(PAGE + "test_everybody_says_why_a_txid_waits_as_its_log_does",),
    ),
    Mutant(
        rule="K1",
        name="who comes late is looked at when something changes",
        path="plugins/reliability_airflow/poller.py",
        old="new = [waiter for waiter in waiters if waiter not in memory.seen]",
        new="new = [] if memory.seen else list(waiters)",
        tests=(WAITING + "test_whoever_comes_late_is_looked_at_though_nothing_changes",),
    ),
    Mutant(
        rule="V1",
        name="a loss passes if the number is right",
        path="reliability/core/acker.py",
        old="emitted.xor == accounted.xor or verdict is Verdict.COUNTED",
        new="True",
        tests=(ASIDE + "test_an_undeclared_loss_beside_a_declared_one_fails",),
    ),
    Mutant(
        rule="V2",
        name="the number of rows proves nothing",
        path="reliability/core/acker.py",
        old="    if emitted.count == accounted.count and (",
        new="    if (",
        tests=(ASIDE + "test_each_element_is_accounted_for",),
    ),
    Mutant(
        rule="V3",
        name="a Spark whose plans carry nothing is refused",
        path="reliability/spark/supported.py",
        old="    if unmet:\n",
        new="    if False:\n",
        tests=(
            "tests/integration/test_supported_sparks.py::"
            "test_a_spark_that_does_otherwise_is_refused_before_a_row_is_read",
        ),
    ),
    Mutant(
        rule="V3",
        name="a join accounts for its right side",
        path="reliability/spark/frames/accounting.py",
        old="            hidden.setdefault(attribute.name, attribute)\n",
        new="            hidden[attribute.name] = attribute\n",
        tests=(HIDDEN + "test_what_loses_or_doubles_a_row_shows",),
    ),
    Mutant(
        rule="V3",
        name="a join by a name forgets what its sides hide",
        path="reliability/spark/frames/accounting.py",
        old="    below = _hidden(child)\n",
        new="    below = {}\n",
        tests=(HIDDEN + "test_what_is_made_of_each_row_accounts_for_it",),
    ),
    Mutant(
        rule="V3",
        name="a joined _X is taken for the accounting",
        path="reliability/spark/frames/accounting.py",
        old="    _check_case(name, frame)\n",
        new="",
        tests=(HIDDEN + "test_a_joined_column_that_spark_takes_for_the_accounting_is_refused",),
    ),
    Mutant(
        rule="V6",
        name="the records of every part of a file are numbered from 0",
        path="reliability/spouts/read_records.py",
        old="            yield self._as_arrow(ordinal, first, self._values(some), some)\n"
        "            first += len(some.lines)\n",
        new="            yield self._as_arrow(ordinal, first, self._values(some), some)\n",
        tests=(MALFORMED + "test_a_record_has_the_same_id_however_spark_cuts_the_work",),
    ),
    Mutant(
        rule="V6",
        name="a file is cut at any line end",
        path="reliability/spouts/csv_blocks.py",
        old="        feeds = feeds[np.searchsorted(quotes, feeds) % 2 == 0]\n",
        new="",
        tests=(RECORDS + "test_arrow_reads_what_python_does_wherever_blocks_end",),
    ),
    Mutant(
        rule="V6",
        name="a value that does not fit is NULL in a state",
        path="reliability/spouts/text_frame.py",
        old='    why = F.coalesce("_why", *misfits)\n',
        new='    why = F.col("_why")\n',
        tests=(
            MALFORMED + "test_what_cannot_be_read_is_quarantined_and_the_rest_counts",
            MALFORMED + "test_a_column_that_no_state_uses_must_be_valid_too",
        ),
    ),
    Mutant(
        rule="V6",
        name="a number of JSON is rounded on its way to a text",
        path="reliability/spouts/json_rows.py",
        old="parse_int=str, parse_float=str, parse_constant=str",
        new="parse_int=str, parse_float=lambda text: str(float(text)), parse_constant=str",
        tests=(MALFORMED + "test_numbers_and_objects_of_json_are_read_as_they_stand",),
    ),
    Mutant(
        rule="V3",
        name="a total of no rows is a row",
        path="reliability/spark/frames/accounting.py",
        old='made if by else made.where("_n IS NOT NULL")',
        new="made",
        tests=(ASIDE + "test_a_total_of_no_rows_is_no_row",),
    ),
    Mutant(
        rule="V5",
        name="sub-plans are compared as Spark has left them",
        path="reliability/spark/frames/one_evaluation.py",
        old="    if asked and uses.in_two_shapes(asked):\n",
        new="    if asked and False:\n",
        tests=(ONCE + "test_every_state_reads_one_evaluation_whatever_columns_its_path_asks_for",),
    ),
    Mutant(
        rule="V5",
        name="what a join by a name hides is not carried",
        path="reliability/spark/frames/carried.py",
        old=" or a.id in keys}\n",
        new="}\n",
        tests=(ONCE + "test_every_state_reads_one_evaluation_whatever_columns_its_path_asks_for",),
    ),
    Mutant(
        rule="V5",
        name="a copy with another union below it is another evaluation",
        path="reliability/spark/frames/carried.py",
        old="        return self._carry(hidden_above_unions(plan), set())\n",
        new="        return self._carry(plan, set())\n",
        tests=(
            ONCE + "test_rows_are_chosen_once_whatever_stands_below_the_choice",
            ONCE + "test_two_evaluations_are_refused",
        ),
    ),
    Mutant(
        rule="V5",
        name="what cannot be told to be one is evaluated twice",
        path="reliability/spark/frames/one_evaluation.py",
        old="        if plan := uses.in_two_shapes(asked):\n",
        new="        if (plan := uses.in_two_shapes(asked)) and False:\n",
        tests=(ONCE + "test_two_evaluations_are_refused",),
    ),
    Mutant(
        rule="V5",
        name="what the process function has evaluated is evaluated again",
        path="reliability/spark/frames/one_evaluation.py",
        old="        uses.refuse_loaded()\n",
        new="",
        tests=(ONCE + "test_two_evaluations_are_refused",),
    ),
    Mutant(
        rule="V5",
        name="only a function is a clock",
        path="reliability/spark/frames/jvm.py",
        old="special.apply(computed.apply(plain))",
        new="computed.apply(plain)",
        tests=(FRAMES + "test_what_two_states_share_and_may_come_out_differently_is_persisted",),
    ),
    Mutant(
        rule="V5",
        name="a function of partitions is taken for repeatable",
        path="reliability/spark/frames/repeatable.py",
        old="        name in OPERATORS\n        and plan.",
        new="        plan.",
        tests=(ONCE + "test_every_function_of_partitions_or_groups_is_called_once",),
    ),
    Mutant(
        rule="V5",
        name="what Spark calls deterministic is evaluated for each state",
        path="reliability/spark/frames/repeatable.py",
        old="        and all(map(_is_repeatable_aggregate, functions))\n",
        new="",
        tests=(
            ONCE + "test_states_agree_on_first_rows_though_their_plans_join_differently",
            REPEATABLE + "test_what_depends_on_the_order_of_rows_differs",
        ),
    ),
    Mutant(
        rule="V5",
        name="a sum of doubles is taken for exact",
        path="reliability/spark/frames/repeatable.py",
        old='"FLOAT|DOUBLE|COLLATE"',
        new='"COLLATE"',
        tests=(REPEATABLE + "test_what_depends_on_the_order_of_rows_differs",),
    ),
    Mutant(
        rule="V5",
        name="a random number that Spark calls deterministic is drawn for each state",
        path="reliability/spark/frames/repeatable.py",
        old="        and not _draws(plan)\n",
        new="",
        tests=(REPEATABLE + "test_which_operations_differ",),
    ),
    Mutant(
        rule="V5",
        name="any seed is taken for a drawn one",
        path="reliability/spark/frames/one_evaluation.py",
        old="_LEAST_DRAWN = 2**48",
        new="_LEAST_DRAWN = 0",
        tests=(ONCE + "test_two_draws_are_no_copies_because_they_have_a_number_in_common",),
    ),
    Mutant(
        rule="V8",
        name="what leaves is counted for every state",
        path="reliability/spark/frames/set_aside_rows.py",
        old="    marks = marks_of(frame, list(set_aside))\n",
        new="    marks = set(set_aside)\n",
        tests=(ASIDE + "test_what_leaves_on_the_way_to_a_state_counts_there_only",),
    ),
    Mutant(
        rule="V8",
        name="the elements of a fan-out share an id",
        path="reliability/spark/frames/set_aside_rows.py",
        old='"_x": _id_in_tree(mark, place)',
        new='"_x": F.when(F.col(place) == 0, F.col("_x")).otherwise(0)',
        tests=(ASIDE + "test_each_element_is_accounted_for",),
    ),
    Mutant(
        rule="V8",
        name="the rows that a fan-out adds are not counted",
        path="reliability/spark/frames/set_aside_rows.py",
        old='count.cast("bigint").alias("_n")',
        new='F.lit(0).cast("bigint").alias("_n")',
        tests=(ASIDE + "test_one_line_becomes_many_words",),
    ),
    Mutant(
        rule="V8",
        name="an element of a group counts as one row",
        path="reliability/spark/frames/set_aside_rows.py",
        old='F.coalesce("_n", F.lit(1)) * (1 - F.col(size))',
        new="1 - F.col(size)",
        tests=(ASIDE + "test_groups_become_many_words",),
    ),
    Mutant(
        rule="V8",
        name="a column is found only as it is spelt",
        path="reliability/spark/frames/columns.py",
        old="spelled.lower() == name.lower()",
        new="spelled == name",
        tests=(ASIDE + "test_a_column_is_found_as_spark_finds_it",),
    ),
    Mutant(
        rule="V8",
        name="a mask of what is not there masks nothing",
        path="reliability/spark/frames/quarantined.py",
        old="    column, path = field_called(rows, name)\n",
        new="    if name not in rows.columns:\n"
        "        return rows\n"
        "    column, path = field_called(rows, name)\n",
        tests=(ASIDE + "test_what_cannot_be_masked_is_refused",),
    ),
    Mutant(
        rule="V8",
        name="a condition is evaluated for what leaves and for what stays",
        path="reliability/spark/frames/set_aside_rows.py",
        old="marked.where(~F.col(mark)).drop(mark)\n",
        new="frame.where(~leaves)\n",
        tests=(ASIDE + "test_what_leaves_on_the_way_to_a_state_counts_there_only",),
    ),
    Mutant(
        rule="V8",
        name="the way of a row ends at what a WITH clause names",
        path="reliability/spark/frames/set_aside_rows.py",
        old='        elif name == "CTERelationRef":\n',
        new="        elif not name:\n",
        tests=(ASIDE + "test_what_leaves_on_the_way_to_a_state_counts_there_only",),
    ),
    Mutant(
        rule="V8",
        name="a checkpoint hides which rows were malformed",
        path="reliability/spark/frames/set_aside_rows.py",
        old="if len(of_inputs) == 1 else",
        new="if False else",
        tests=(
            MALFORMED
            + "test_malformed_rows_count_although_the_plan_of_a_checkpoint_does_not_show_them",
            ASIDE + "test_a_later_step_starts_from_what_an_earlier_one_has_left",
        ),
    ),
    Mutant(
        rule="V8",
        name="rows are in quarantine before their txid commits",
        path="sql/migrations/0006_quarantine.sql",
        old=" WHERE a.status = 'COMMITTED';\n",
        new=";\n",
        tests=(ASIDE + "test_what_is_set_aside_counts_from_the_commit_to_a_rollback",),
    ),
    Mutant(
        rule="V8",
        name="a later step forgets what an earlier one has set aside",
        path="reliability/spark/driver.py",
        old="before | processed.set_aside",
        new="processed.set_aside",
        tests=(ASIDE + "test_a_later_step_starts_from_what_an_earlier_one_has_left",),
    ),
    Mutant(
        rule="V8",
        name="what no state lacks goes into the quarantine",
        path="reliability/spark/frames/set_aside_rows.py",
        old="    return [call for call in calls if call.mark in used], unused\n",
        new="    return list(calls), []\n",
        tests=(ASIDE + "test_what_no_state_lacks_is_not_in_quarantine",),
    ),
    Mutant(
        rule="V9",
        name="a corrected row is looked for where its file was",
        path="reliability/spark/frames/corrections.py",
        old="        (item and paths.get(item, item), id_): change",
        new="        (item, id_): change",
        tests=(QUARANTINE + "test_a_correction_finds_its_row_when_the_home_has_moved",),
    ),
    Mutant(
        rule="V9",
        name="a correction is applied to whatever row has its id",
        path="reliability/spark/frames/corrections.py",
        old="    _check(frame, in_spark)\n",
        new="",
        tests=(QUARANTINE + "test_a_row_that_is_another_one_now_or_gone_fails_the_attempt",),
    ),
    Mutant(
        rule="V9",
        name="only the edited columns of a corrected row are compared",
        path="reliability/spark/frames/corrections.py",
        old="if not _has(row.values, changes[row.place].was)]",
        new="if not _has(row.values, {n: changes[row.place].was[n]"
        " for n in changes[row.place].becomes})]",
        tests=(QUARANTINE + "test_a_row_that_is_another_one_now_or_gone_fails_the_attempt",),
    ),
    Mutant(
        rule="V9",
        name="a corrected row is found by its id alone",
        path="reliability/spark/frames/corrections.py",
        old="    return place_of(frame, field).cast(type_)\n",
        new="    from pyspark.sql import functions as F\n\n    return F.lit(None).cast(type_)\n",
        tests=(
            QUARANTINE + "test_a_correction_follows_its_row_when_a_file_is_excluded",
            QUARANTINE + "test_a_correction_never_moves_to_an_equal_row_of_another_file",
        ),
    ),
    Mutant(
        rule="V9",
        name="an export is for whatever row has its place now",
        path="reliability/transaction/correct/quarantine.py",
        old='row["item"], place, row["contents"], row["source"]]',
        new='row["item"], place]',
        tests=(QUARANTINE + "test_a_refreeze_ends_corrections_and_a_dry_run_of_it_reads_none",),
    ),
    Mutant(
        rule="V9",
        name="of two lines of a row the last one counts",
        path="reliability/transaction/correct/quarantine.py",
        old="    common = edited.values.keys() & other.values.keys()\n",
        new="    common: set[str] = set()\n",
        tests=(
            QUARANTINE + "test_two_lines_of_a_row_must_not_differ",
            QUARANTINE + "test_each_line_is_compared_with_the_row_that_it_is_from",
        ),
    ),
    Mutant(
        rule="V9",
        name="a line with a masked value replaces what was corrected there",
        path="reliability/transaction/correct/quarantine.py",
        old="        becomes |= {name: kept[name] for name in kept if name not in row.was}\n",
        new="",
        tests=(QUARANTINE + "test_each_line_is_compared_with_the_row_that_it_is_from",),
    ),
    Mutant(
        rule="V9",
        name="Spark's JSON reader converts the edited values",
        path="reliability/spark/frames/corrections.py",
        old='        read = F.from_json("text", as_text(schema))\n',
        new='        read = F.from_json("text", schema)\n',
        tests=(QUARANTINE + "test_a_value_that_would_change_is_refused",),
    ),
    Mutant(
        rule="V9",
        name="every attempt reads the corrections of a dry run",
        path="sql/queries/quarantine.sql",
        old="   AND (c.request_id IS NULL OR c.request_id = a.request_id)\n",
        new="",
        tests=(
            QUARANTINE + "test_a_dry_run_shows_what_corrected_rows_change_and_a_replay_does_it",
        ),
    ),
    Mutant(
        rule="V9",
        name="corrections outlive the batch that they correct",
        path="reliability/transaction/emit/refreeze.py",
        old='        tx.all("end_corrections_of_txid", reason=f"refrozen: {reason}", **key)\n',
        new="",
        tests=(QUARANTINE + "test_a_refreeze_ends_corrections_and_a_dry_run_of_it_reads_none",),
    ),
    Mutant(
        rule="K2",
        name="an alert ends at each look, and begins again",
        path="sql/queries/alert.sql",
        old="""
   AND (kind, subject) NOT IN (
       SELECT * FROM unnest(%(kinds)s::text[], %(subjects)s::text[]));
""",
        new=";\n",
        tests=(ALERTS + "test_an_alert_fires_once_and_is_over_once",),
    ),
    Mutant(
        rule="K2",
        name="who is told is not claimed",
        path="sql/queries/alert.sql",
        old="ON CONFLICT ON CONSTRAINT told_once DO NOTHING\n",
        new="ON CONFLICT ON CONSTRAINT told_once DO UPDATE SET told_at = clock_timestamp()\n",
        tests=(ALERTS + "test_two_processes_tell_once",),
    ),
    Mutant(
        rule="K2",
        name="a channel that failed is not tried again",
        path="reliability/transaction/inspect/alerts.py",
        old='            tx.run("unclaim_alert", **claim)\n',
        new="            pass\n",
        tests=(
            ALERTS + "test_each_channel_is_told_for_itself_and_again_after_a_failure",
            ALERTS + "test_a_notifier_is_rendered_for_each_alert",
        ),
    ),
)
