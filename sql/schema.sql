-- Generated: what all migrations make. Their comments say what it is for.

CREATE SCHEMA reliability;

CREATE SCHEMA reliability_contribution;

CREATE TABLE reliability.ack (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    sink text NOT NULL,
    partition integer NOT NULL,
    write_id uuid NOT NULL,
    xor bigint NOT NULL,
    count bigint NOT NULL,
    rows bigint NOT NULL,
    acked_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    digest bigint,
    began_at timestamp with time zone DEFAULT now(),
    CONSTRAINT ack_once_per_partition PRIMARY KEY (topology, txid, attempt_id, sink, partition),
    CONSTRAINT ack_topology_txid_attempt_id_sink_fkey FOREIGN KEY (topology, txid, attempt_id, sink) REFERENCES reliability.sink(topology, txid, attempt_id, sink)
);

CREATE TABLE reliability.alert (
    alert_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    what text NOT NULL,
    advice text NOT NULL,
    command text NOT NULL,
    since timestamp with time zone NOT NULL,
    begun_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamp with time zone,
    CONSTRAINT alert_pkey PRIMARY KEY (alert_id),
    CONSTRAINT alert_kind CHECK ((kind = ANY (ARRAY['BLOCKED'::text, 'LAG'::text, 'LEASE_EXPIRED'::text, 'RUN_UNSATISFIED'::text, 'CHANGED_BY_HAND'::text])))
);

CREATE INDEX alert_by_end ON reliability.alert USING btree (ended_at);

CREATE INDEX alert_by_subject ON reliability.alert USING btree (topology, kind, subject);

CREATE UNIQUE INDEX one_open_alert ON reliability.alert USING btree (topology, kind, subject) WHERE (ended_at IS NULL);

CREATE TABLE reliability.alert_told (
    alert_id bigint NOT NULL,
    channel text NOT NULL,
    is_over boolean NOT NULL,
    told_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT told_once PRIMARY KEY (alert_id, channel, is_over),
    CONSTRAINT alert_told_alert_id_fkey FOREIGN KEY (alert_id) REFERENCES reliability.alert(alert_id)
);

CREATE TABLE reliability.alteration (
    alteration_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    state text NOT NULL,
    altered_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL,
    commit_number bigint NOT NULL,
    counts_from bigint NOT NULL,
    differences text[] NOT NULL,
    statements text[] NOT NULL,
    added text[] NOT NULL,
    definition_before jsonb,
    digest_before text,
    definition_after jsonb,
    digest_after text,
    CONSTRAINT alteration_pkey PRIMARY KEY (alteration_id),
    CONSTRAINT alteration_topology_fkey FOREIGN KEY (topology) REFERENCES reliability.topology(topology),
    CONSTRAINT alteration_changes_something CHECK ((digest_before IS DISTINCT FROM digest_after)),
    CONSTRAINT alteration_digests_its_definitions CHECK ((((definition_before IS NULL) = (digest_before IS NULL)) AND ((definition_after IS NULL) = (digest_after IS NULL)))),
    CONSTRAINT alteration_says_why CHECK ((reason <> ''::text)),
    CONSTRAINT only_what_stays_has_added_values CHECK (((definition_after IS NOT NULL) OR (added = '{}'::text[])))
);

CREATE INDEX alteration_by_state ON reliability.alteration USING btree (topology, state);

CREATE TABLE reliability.attempt (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    nonce uuid NOT NULL DEFAULT gen_random_uuid(),
    request_id bigint,
    status text NOT NULL DEFAULT 'PROCESSING'::text,
    lease interval NOT NULL,
    lease_until timestamp with time zone,
    sealing_task text,
    reason_code text,
    reason text,
    verdict text,
    verdict_reason text,
    batch_meta jsonb,
    emitted_xor bigint,
    emitted_count bigint,
    predecessor_attempt integer,
    batch_digest text,
    granted_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    processed_at timestamp with time zone,
    ended_at timestamp with time zone,
    cleaned_at timestamp with time zone,
    as_refrozen boolean NOT NULL DEFAULT false,
    CONSTRAINT attempt_pkey PRIMARY KEY (topology, txid, attempt_id),
    CONSTRAINT attempt_request_id_fkey FOREIGN KEY (request_id) REFERENCES reliability.request(request_id),
    CONSTRAINT attempt_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES reliability.transaction(topology, txid),
    CONSTRAINT attempt_id_starts_at_0 CHECK ((attempt_id >= 0)),
    CONSTRAINT attempt_status CHECK ((status = ANY (ARRAY['PROCESSING'::text, 'SEALING'::text, 'PROCESSED'::text, 'COMMITTED'::text, 'REPLACED'::text, 'FAILED'::text, 'FENCED'::text, 'DRY_RUN'::text, 'ROLLED_BACK'::text]))),
    CONSTRAINT attempt_verdict CHECK ((verdict = ANY (ARRAY['PARKED'::text, 'SKIPPED'::text]))),
    CONSTRAINT ended_says_why CHECK (((status = ANY (ARRAY['FAILED'::text, 'FENCED'::text, 'ROLLED_BACK'::text])) = (reason_code IS NOT NULL))),
    CONSTRAINT lease_while_unsealed CHECK (((status = ANY (ARRAY['PROCESSING'::text, 'SEALING'::text])) = (lease_until IS NOT NULL))),
    CONSTRAINT only_an_own_batch_has_a_predecessor CHECK (((predecessor_attempt IS NULL) OR (batch_meta IS NOT NULL))),
    CONSTRAINT only_what_cannot_count_is_cleaned CHECK (((cleaned_at IS NULL) OR (status = ANY (ARRAY['FAILED'::text, 'FENCED'::text, 'REPLACED'::text, 'DRY_RUN'::text, 'ROLLED_BACK'::text])))),
    CONSTRAINT own_batch_is_whole CHECK ((((batch_meta IS NULL) = (emitted_xor IS NULL)) AND ((batch_meta IS NULL) = (emitted_count IS NULL)))),
    CONSTRAINT verdict_says_why CHECK (((verdict IS NULL) = (verdict_reason IS NULL)))
);

CREATE INDEX attempt_by_grant ON reliability.attempt USING btree (topology, granted_at);

CREATE INDEX attempt_that_failed ON reliability.attempt USING btree (topology, status, ended_at) WHERE (status = ANY (ARRAY['FAILED'::text, 'FENCED'::text]));

CREATE INDEX attempt_to_clean ON reliability.attempt USING btree (topology, txid, attempt_id) WHERE ((cleaned_at IS NULL) AND (status = ANY (ARRAY['FAILED'::text, 'FENCED'::text, 'REPLACED'::text, 'DRY_RUN'::text, 'ROLLED_BACK'::text])));

CREATE INDEX attempt_with_verdict ON reliability.attempt USING btree (topology, txid) WHERE (verdict IS NOT NULL);

CREATE UNIQUE INDEX one_committed_attempt_per_txid ON reliability.attempt USING btree (topology, txid) WHERE (status = 'COMMITTED'::text);

CREATE UNIQUE INDEX one_live_attempt_per_txid ON reliability.attempt USING btree (topology, txid) WHERE (status = ANY (ARRAY['PROCESSING'::text, 'SEALING'::text, 'PROCESSED'::text]));

CREATE TRIGGER attempt_begins AFTER INSERT ON reliability.attempt FOR EACH ROW EXECUTE FUNCTION reliability.record_attempt_event();
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_begins;

CREATE TRIGGER attempt_changes AFTER UPDATE OF status ON reliability.attempt FOR EACH ROW WHEN ((old.status IS DISTINCT FROM new.status)) EXECUTE FUNCTION reliability.record_attempt_event();
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_changes;

CREATE TRIGGER attempt_falls AFTER UPDATE OF status ON reliability.attempt FOR EACH ROW WHEN (((new.status = ANY (ARRAY['FAILED'::text, 'FENCED'::text])) AND (old.status <> new.status))) EXECUTE FUNCTION reliability.fail_successor();
ALTER TABLE reliability.attempt ENABLE ALWAYS TRIGGER attempt_falls;

CREATE TABLE reliability.attempt_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    status text NOT NULL,
    reason_code text,
    reason text,
    happened_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT attempt_event_pkey PRIMARY KEY (event_id)
);

CREATE INDEX attempt_event_by_attempt ON reliability.attempt_event USING btree (topology, txid, attempt_id);

CREATE TABLE reliability.attempt_step (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    step text NOT NULL,
    status text NOT NULL DEFAULT 'OPEN'::text,
    claimed_by text,
    driver_host text,
    driver_pid integer,
    python_pid integer,
    application_id text,
    code_digest text,
    claimed_at timestamp with time zone,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    ui_url text,
    CONSTRAINT attempt_step_pkey PRIMARY KEY (topology, txid, attempt_id, step),
    CONSTRAINT attempt_step_code_digest_fkey FOREIGN KEY (code_digest) REFERENCES reliability.code(digest),
    CONSTRAINT attempt_step_topology_txid_attempt_id_fkey FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt(topology, txid, attempt_id),
    CONSTRAINT done_has_an_end CHECK (((status = 'DONE'::text) = (ended_at IS NOT NULL))),
    CONSTRAINT open_step_is_nobodys CHECK ((((status = 'OPEN'::text) = (claimed_by IS NULL)) AND ((status = 'OPEN'::text) = (claimed_at IS NULL)))),
    CONSTRAINT step_status CHECK ((status = ANY (ARRAY['OPEN'::text, 'RUNNING'::text, 'DONE'::text])))
);

CREATE TABLE reliability.attempt_table (
    table_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    state text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    bytes bigint,
    CONSTRAINT attempt_table_pkey PRIMARY KEY (table_id),
    CONSTRAINT one_table_per_attempt_and_state UNIQUE (topology, state, txid, attempt_id),
    CONSTRAINT attempt_table_topology_txid_attempt_id_fkey FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt(topology, txid, attempt_id)
);

CREATE TABLE reliability.audit (
    digest text NOT NULL,
    name text NOT NULL,
    of text NOT NULL,
    severity text NOT NULL,
    query text NOT NULL,
    CONSTRAINT audit_once_per_version PRIMARY KEY (digest),
    CONSTRAINT audit_has_a_name CHECK ((name <> ''::text)),
    CONSTRAINT audit_of CHECK ((of = ANY (ARRAY['contribution'::text, 'table'::text]))),
    CONSTRAINT audit_severity CHECK ((severity = ANY (ARRAY['error'::text, 'warn'::text])))
);

CREATE TABLE reliability.audit_result (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    state text NOT NULL,
    digest text NOT NULL,
    violations bigint,
    examples text[],
    problem text,
    error_code text,
    audited_at timestamp with time zone,
    CONSTRAINT audit_result_once_per_attempt PRIMARY KEY (topology, txid, attempt_id, state, digest),
    CONSTRAINT audit_result_digest_fkey FOREIGN KEY (digest) REFERENCES reliability.audit(digest),
    CONSTRAINT audit_result_topology_txid_attempt_id_state_fkey FOREIGN KEY (topology, txid, attempt_id, state) REFERENCES reliability.sink(topology, txid, attempt_id, sink),
    CONSTRAINT audit_found_violations_or_failed CHECK ((((audited_at IS NULL) AND (num_nonnulls(violations, examples, problem, error_code) = 0)) OR ((audited_at IS NOT NULL) AND (num_nonnulls(violations, problem) = 1) AND ((violations IS NULL) = (examples IS NULL)) AND ((problem IS NULL) = (error_code IS NULL))))),
    CONSTRAINT violations_are_counted CHECK ((violations >= 0))
);

CREATE TABLE reliability.checkpoint (
    topology text NOT NULL,
    phase text NOT NULL DEFAULT 'COMMITTED'::text,
    commit_number bigint NOT NULL DEFAULT 0,
    plan jsonb NOT NULL DEFAULT '[]'::jsonb,
    epoch bigint NOT NULL DEFAULT 0,
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT checkpoint_pkey PRIMARY KEY (topology),
    CONSTRAINT checkpoint_topology_fkey FOREIGN KEY (topology) REFERENCES reliability.topology(topology),
    CONSTRAINT checkpoint_phase CHECK ((phase = ANY (ARRAY['PREPARING'::text, 'COMMITTING'::text, 'COMMITTED'::text]))),
    CONSTRAINT commit_number_covers_the_plan CHECK ((commit_number >= jsonb_array_length(plan))),
    CONSTRAINT epoch_starts_at_0 CHECK ((epoch >= 0)),
    CONSTRAINT plan_until_committed CHECK (((phase = 'COMMITTED'::text) = (plan = '[]'::jsonb)))
);

CREATE TABLE reliability.code (
    digest text NOT NULL,
    contents jsonb NOT NULL,
    seen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT code_pkey PRIMARY KEY (digest)
);

CREATE TABLE reliability.commit_log (
    topology text NOT NULL,
    commit_number bigint NOT NULL,
    kind text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer,
    replaced_attempt integer,
    rollbacks integer NOT NULL,
    reason text,
    committed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    began_at timestamp with time zone DEFAULT now(),
    CONSTRAINT commit_log_pkey PRIMARY KEY (topology, commit_number),
    CONSTRAINT commit_log_topology_txid_attempt_id_fkey FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt(topology, txid, attempt_id),
    CONSTRAINT change_kind CHECK ((kind = ANY (ARRAY['COMMIT'::text, 'REPLAY'::text, 'ROLLBACK'::text, 'REPAIR'::text]))),
    CONSTRAINT only_a_replay_replaces CHECK (((kind = 'REPLAY'::text) = (replaced_attempt IS NOT NULL))),
    CONSTRAINT only_a_rollback_or_a_repair_has_no_attempt CHECK (((kind = ANY (ARRAY['ROLLBACK'::text, 'REPAIR'::text])) = (attempt_id IS NULL)))
);

CREATE INDEX commit_log_by_hour ON reliability.commit_log USING brin (date_bin('01:00:00'::interval, committed_at, '1970-01-01 00:00:00+00'::timestamp with time zone));

CREATE INDEX commit_log_by_minute ON reliability.commit_log USING brin (date_bin('00:01:00'::interval, committed_at, '1970-01-01 00:00:00+00'::timestamp with time zone));

CREATE INDEX commit_log_by_txid ON reliability.commit_log USING btree (topology, txid);

CREATE UNIQUE INDEX one_first_commit_per_txid ON reliability.commit_log USING btree (topology, txid, rollbacks) WHERE (kind = 'COMMIT'::text);

CREATE TABLE reliability.contribution (
    topology text NOT NULL,
    state text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    presence text NOT NULL,
    rows bigint NOT NULL,
    CONSTRAINT contribution_pkey PRIMARY KEY (topology, state, txid),
    CONSTRAINT contribution_topology_state_fkey FOREIGN KEY (topology, state) REFERENCES reliability.state(topology, state),
    CONSTRAINT contribution_topology_txid_attempt_id_fkey FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt(topology, txid, attempt_id),
    CONSTRAINT contribution_presence CHECK ((presence = ANY (ARRAY['present'::text, 'empty'::text, 'compacted'::text]))),
    CONSTRAINT empty_contribution_has_no_rows CHECK (((rows >= 0) AND ((presence = 'compacted'::text) OR ((presence = 'empty'::text) = (rows = 0)))))
);

CREATE TABLE reliability.correction (
    correction_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    txid bigint NOT NULL,
    xor bigint NOT NULL,
    item text,
    "row" bigint,
    was text NOT NULL,
    becomes text NOT NULL,
    reason text NOT NULL,
    corrected_by text NOT NULL,
    corrected_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    request_id bigint,
    ended_at timestamp with time zone,
    ended_reason text,
    CONSTRAINT correction_pkey PRIMARY KEY (correction_id),
    CONSTRAINT correction_request_id_fkey FOREIGN KEY (request_id) REFERENCES reliability.request(request_id),
    CONSTRAINT correction_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES reliability.transaction(topology, txid),
    CONSTRAINT correction_changes_something CHECK ((becomes <> '{}'::text)),
    CONSTRAINT correction_says_why CHECK ((reason <> ''::text)),
    CONSTRAINT correction_that_ended_says_why CHECK ((((ended_at IS NULL) = (ended_reason IS NULL)) AND (ended_reason <> ''::text)))
);

CREATE UNIQUE INDEX one_correction_per_row ON reliability.correction USING btree (topology, txid, COALESCE(item, ''::text), COALESCE("row", xor)) WHERE ((ended_at IS NULL) AND (request_id IS NULL));

CREATE TABLE reliability.difference (
    difference_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    state text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer,
    commit_number bigint,
    rows_added bigint NOT NULL,
    rows_changed bigint NOT NULL,
    rows_removed bigint NOT NULL,
    moved jsonb NOT NULL,
    recorded_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    by_hand jsonb,
    CONSTRAINT difference_pkey PRIMARY KEY (difference_id)
);

CREATE INDEX difference_by_txid ON reliability.difference USING btree (topology, txid);

CREATE TABLE reliability.emission (
    topology text NOT NULL,
    dag_id text NOT NULL,
    run_id text NOT NULL,
    interval_start timestamp with time zone,
    interval_end timestamp with time zone,
    status text NOT NULL DEFAULT 'EMITTING'::text,
    began_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamp with time zone,
    failing_since timestamp with time zone,
    reason_code text,
    reason text,
    CONSTRAINT emission_pkey PRIMARY KEY (topology, dag_id, run_id),
    CONSTRAINT emission_interval_has_both_ends CHECK (((interval_start IS NULL) = (interval_end IS NULL))),
    CONSTRAINT emission_status CHECK ((status = ANY (ARRAY['EMITTING'::text, 'EMITTED'::text, 'FAILED'::text]))),
    CONSTRAINT emission_that_ended_has_an_end CHECK (((status = 'EMITTING'::text) = (ended_at IS NULL))),
    CONSTRAINT failed_emission_says_why CHECK ((((status = 'FAILED'::text) = (reason_code IS NOT NULL)) AND ((reason_code IS NULL) = (reason IS NULL)) AND ((status <> 'FAILED'::text) OR (failing_since IS NOT NULL))))
);

CREATE INDEX emission_by_interval ON reliability.emission USING btree (topology, interval_start, interval_end);

CREATE TABLE reliability.exclusion (
    topology text NOT NULL,
    item text NOT NULL,
    excluded_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    excluded_by text NOT NULL,
    reason text NOT NULL,
    ended_at timestamp with time zone,
    ended_by text,
    ended_reason text,
    CONSTRAINT exclusion_pkey PRIMARY KEY (topology, item, excluded_at),
    CONSTRAINT exclusion_topology_fkey FOREIGN KEY (topology) REFERENCES reliability.topology(topology),
    CONSTRAINT inclusion_is_whole CHECK ((((ended_at IS NULL) = (ended_by IS NULL)) AND ((ended_at IS NULL) = (ended_reason IS NULL))))
);

CREATE UNIQUE INDEX one_exclusion_per_item ON reliability.exclusion USING btree (topology, item) WHERE (ended_at IS NULL);

CREATE TABLE reliability.migration (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT migration_pkey PRIMARY KEY (number)
);

CREATE TABLE reliability.participant (
    topology text NOT NULL,
    database text NOT NULL,
    CONSTRAINT participant_pkey PRIMARY KEY (topology, database),
    CONSTRAINT participant_topology_fkey FOREIGN KEY (topology) REFERENCES reliability.topology(topology),
    CONSTRAINT participant_is_another_database CHECK ((database <> ''::text))
);

CREATE TABLE reliability.quarantined_row (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    step text NOT NULL,
    number integer NOT NULL,
    reason text NOT NULL,
    item text,
    "row" bigint,
    contents text NOT NULL,
    is_cut boolean NOT NULL,
    xor bigint NOT NULL,
    count bigint NOT NULL,
    source text,
    CONSTRAINT quarantined_row_pkey PRIMARY KEY (topology, txid, attempt_id, step, number),
    CONSTRAINT quarantined_row_topology_txid_attempt_id_fkey FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt(topology, txid, attempt_id),
    CONSTRAINT quarantined_row_has_a_reason CHECK ((reason <> ''::text))
);

CREATE TABLE reliability.refreeze (
    topology text NOT NULL,
    txid bigint NOT NULL,
    refrozen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    batch_meta jsonb NOT NULL,
    reason text NOT NULL,
    emitted_xor bigint,
    emitted_count bigint,
    CONSTRAINT refreeze_pkey PRIMARY KEY (topology, txid, refrozen_at),
    CONSTRAINT refreeze_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES reliability.transaction(topology, txid),
    CONSTRAINT emitted_is_whole CHECK (((emitted_xor IS NULL) = (emitted_count IS NULL)))
);

CREATE TABLE reliability.request (
    request_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    topology text NOT NULL,
    txid bigint NOT NULL,
    dag_id text NOT NULL,
    run_id text NOT NULL,
    number integer NOT NULL,
    kind text NOT NULL,
    is_dry_run boolean NOT NULL DEFAULT false,
    status text NOT NULL DEFAULT 'OPEN'::text,
    reason text,
    granted_after integer NOT NULL,
    opened_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    renewed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamp with time zone,
    tasks_ended_at timestamp with time zone,
    problem_code text,
    problem text,
    CONSTRAINT request_pkey PRIMARY KEY (request_id),
    CONSTRAINT request_is_numbered UNIQUE (topology, txid, dag_id, run_id, number),
    CONSTRAINT request_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES reliability.transaction(topology, txid),
    CONSTRAINT dry_run_of_a_replay CHECK (((NOT is_dry_run) OR (kind = 'REPLAY'::text))),
    CONSTRAINT open_request_has_no_end CHECK (((status = 'OPEN'::text) = (ended_at IS NULL))),
    CONSTRAINT problem_has_a_code CHECK (((problem IS NULL) = (problem_code IS NULL))),
    CONSTRAINT request_kind CHECK ((kind = ANY (ARRAY['COMMIT'::text, 'REPLAY'::text]))),
    CONSTRAINT request_status CHECK ((status = ANY (ARRAY['OPEN'::text, 'SATISFIED'::text, 'CLOSED'::text, 'GIVEN_UP'::text, 'PARKED'::text])))
);

CREATE UNIQUE INDEX one_open_request_per_run_and_txid ON reliability.request USING btree (topology, txid, dag_id, run_id) WHERE (status = 'OPEN'::text);

CREATE INDEX request_by_run ON reliability.request USING btree (dag_id, run_id);

CREATE INDEX request_that_ended_without ON reliability.request USING btree (dag_id, run_id) WHERE (status = ANY (ARRAY['CLOSED'::text, 'GIVEN_UP'::text]));

CREATE TABLE reliability.request_contact (
    request_id bigint NOT NULL,
    task text NOT NULL,
    max_tries integer NOT NULL,
    try_id text NOT NULL DEFAULT ''::text,
    clear_number integer NOT NULL DEFAULT 0,
    run_started text NOT NULL DEFAULT ''::text,
    CONSTRAINT request_contact_pkey PRIMARY KEY (request_id, task),
    CONSTRAINT request_contact_request_id_fkey FOREIGN KEY (request_id) REFERENCES reliability.request(request_id)
);

CREATE TABLE reliability.schedule (
    topology text NOT NULL,
    dag_id text NOT NULL,
    cron text,
    time_zone text,
    period interval,
    not_evaluated text,
    first_start timestamp with time zone,
    last_start timestamp with time zone,
    catchup boolean NOT NULL,
    recorded_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT schedule_pkey PRIMARY KEY (topology),
    CONSTRAINT cron_has_a_time_zone CHECK (((cron IS NULL) = (time_zone IS NULL))),
    CONSTRAINT schedule_is_of_one_kind CHECK ((num_nonnulls(cron, period, not_evaluated) = 1)),
    CONSTRAINT schedule_period_is_positive CHECK ((period > '00:00:00'::interval))
);

CREATE TABLE reliability.server (
    only_row boolean NOT NULL DEFAULT true,
    timeline integer NOT NULL,
    CONSTRAINT server_pkey PRIMARY KEY (only_row),
    CONSTRAINT one_server CHECK (only_row)
);

CREATE TABLE reliability.set_aside (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    sink text NOT NULL,
    kind text NOT NULL,
    reason text NOT NULL,
    xor bigint NOT NULL,
    count bigint NOT NULL,
    CONSTRAINT set_aside_once_per_reason PRIMARY KEY (topology, txid, attempt_id, sink, kind, reason),
    CONSTRAINT set_aside_topology_txid_attempt_id_sink_fkey FOREIGN KEY (topology, txid, attempt_id, sink) REFERENCES reliability.sink(topology, txid, attempt_id, sink),
    CONSTRAINT only_a_fan_out_adds CHECK (
CASE kind
    WHEN 'FANNED_OUT'::text THEN ((count < 0) AND (xor = 0))
    ELSE (count > 0)
END),
    CONSTRAINT set_aside_has_a_reason CHECK ((reason <> ''::text)),
    CONSTRAINT set_aside_kind CHECK ((kind = ANY (ARRAY['DROPPED'::text, 'QUARANTINED'::text, 'FANNED_OUT'::text])))
);

CREATE TABLE reliability.sink (
    topology text NOT NULL,
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    sink text NOT NULL,
    step text NOT NULL,
    ack_val bigint NOT NULL,
    unacked bigint NOT NULL,
    partitions integer,
    staged_rows bigint,
    contribution_digest text,
    CONSTRAINT sink_pkey PRIMARY KEY (topology, txid, attempt_id, sink),
    CONSTRAINT sink_topology_txid_attempt_id_fkey FOREIGN KEY (topology, txid, attempt_id) REFERENCES reliability.attempt(topology, txid, attempt_id),
    CONSTRAINT partitions_are_counted CHECK ((partitions >= 0))
);

CREATE TABLE reliability.skip (
    topology text NOT NULL,
    txid bigint NOT NULL,
    skipped_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    skipped_by text NOT NULL,
    reason text NOT NULL,
    ended_at timestamp with time zone,
    ended_by text,
    ended_reason text,
    CONSTRAINT skip_pkey PRIMARY KEY (topology, txid, skipped_at),
    CONSTRAINT skip_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES reliability.transaction(topology, txid),
    CONSTRAINT unskip_is_whole CHECK ((((ended_at IS NULL) = (ended_by IS NULL)) AND ((ended_at IS NULL) = (ended_reason IS NULL))))
);

CREATE UNIQUE INDEX one_skip_per_txid ON reliability.skip USING btree (topology, txid) WHERE (ended_at IS NULL);

CREATE TABLE reliability.source_item (
    topology text NOT NULL,
    item text NOT NULL,
    txid bigint NOT NULL,
    part int8multirange NOT NULL,
    refrozen_part int8multirange,
    CONSTRAINT source_item_pkey PRIMARY KEY (topology, item, txid),
    CONSTRAINT source_item_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES reliability.transaction(topology, txid),
    CONSTRAINT source_item_part_has_something CHECK ((NOT isempty(part))),
    CONSTRAINT source_item_belongs_to_one_txid EXCLUDE USING gist (int8range((hashtextextended(((topology || '/'::text) || item), (0)::bigint) >> 1), (hashtextextended(((topology || '/'::text) || item), (0)::bigint) >> 1), '[]'::text) WITH &&, part WITH &&)
);

CREATE INDEX source_item_frozen_anew ON reliability.source_item USING btree (topology, txid) WHERE (refrozen_part IS NOT NULL);

CREATE TABLE reliability.state (
    topology text NOT NULL,
    state text NOT NULL,
    target_table text NOT NULL,
    definition jsonb NOT NULL,
    definition_digest text NOT NULL,
    commit_number bigint NOT NULL DEFAULT 0,
    keep_txids bigint,
    keep_age interval,
    compacted_through bigint NOT NULL DEFAULT 0,
    CONSTRAINT state_pkey PRIMARY KEY (topology, state),
    CONSTRAINT one_state_per_target_table UNIQUE (target_table),
    CONSTRAINT state_topology_fkey FOREIGN KEY (topology) REFERENCES reliability.topology(topology),
    CONSTRAINT keep_txids_starts_at_1 CHECK ((keep_txids >= 1))
);

CREATE TABLE reliability.topology (
    topology text NOT NULL,
    topology_id uuid NOT NULL DEFAULT gen_random_uuid(),
    participant text,
    module text NOT NULL DEFAULT ''::text,
    spout_kind text NOT NULL DEFAULT 'TRANSACTIONAL'::text,
    curr_txid bigint NOT NULL DEFAULT 1,
    next_txid bigint NOT NULL DEFAULT 1,
    commit_number bigint NOT NULL DEFAULT 0,
    rollbacks integer NOT NULL DEFAULT 0,
    compacted_through bigint NOT NULL DEFAULT 0,
    max_spout_pending integer NOT NULL,
    max_replay_pending integer NOT NULL DEFAULT 1,
    emit_interval interval NOT NULL DEFAULT '00:00:00'::interval,
    checkpoint_interval interval NOT NULL DEFAULT '00:00:00'::interval,
    groups_commits boolean NOT NULL DEFAULT true,
    declared_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    last_granted_at timestamp with time zone,
    paused_at timestamp with time zone,
    paused_reason text,
    blocked_timeout interval NOT NULL DEFAULT '7 days'::interval,
    CONSTRAINT topology_pkey PRIMARY KEY (topology),
    CONSTRAINT checkpoint_interval_has_a_floor CHECK (((checkpoint_interval = '00:00:00'::interval) OR (checkpoint_interval >= '00:00:00.1'::interval))),
    CONSTRAINT curr_txid_within_allocated CHECK (((curr_txid >= 1) AND (curr_txid <= next_txid))),
    CONSTRAINT max_replay_pending_starts_at_1 CHECK ((max_replay_pending >= 1)),
    CONSTRAINT max_spout_pending_starts_at_1 CHECK ((max_spout_pending >= 1)),
    CONSTRAINT only_the_committed_is_compacted CHECK (((participant IS NOT NULL) OR (compacted_through < curr_txid))),
    CONSTRAINT participant_has_a_name CHECK ((participant <> ''::text)),
    CONSTRAINT paused_says_why CHECK (((paused_at IS NULL) = (paused_reason IS NULL))),
    CONSTRAINT spout_kind CHECK ((spout_kind = ANY (ARRAY['TRANSACTIONAL'::text, 'OPAQUE'::text])))
);

CREATE TRIGGER topology_has_a_checkpoint AFTER INSERT ON reliability.topology FOR EACH ROW EXECUTE FUNCTION reliability.open_checkpoint();
ALTER TABLE reliability.topology ENABLE ALWAYS TRIGGER topology_has_a_checkpoint;

CREATE TABLE reliability.transaction (
    topology text NOT NULL,
    txid bigint NOT NULL,
    interval_start timestamp with time zone,
    interval_end timestamp with time zone,
    dag_id text NOT NULL,
    run_id text NOT NULL,
    emitted_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    batch_meta jsonb,
    emitted_xor bigint,
    emitted_count bigint,
    verdict text,
    held_reason text,
    committed_attempt integer,
    commit_number bigint,
    committed_at timestamp with time zone,
    CONSTRAINT transaction_pkey PRIMARY KEY (topology, txid),
    CONSTRAINT transaction_topology_fkey FOREIGN KEY (topology) REFERENCES reliability.topology(topology),
    CONSTRAINT batch_is_whole CHECK ((((batch_meta IS NULL) = (emitted_xor IS NULL)) AND ((batch_meta IS NULL) = (emitted_count IS NULL)))),
    CONSTRAINT committed_batch_has_a_verdict CHECK (((committed_attempt IS NULL) OR (verdict IS NOT NULL))),
    CONSTRAINT committed_batch_is_frozen CHECK (((committed_attempt IS NULL) OR (batch_meta IS NOT NULL))),
    CONSTRAINT committed_is_whole CHECK ((((committed_attempt IS NULL) = (committed_at IS NULL)) AND ((committed_attempt IS NULL) = (commit_number IS NULL)))),
    CONSTRAINT emitted_count_is_no_loss CHECK ((emitted_count >= 0)),
    CONSTRAINT interval_has_both_ends CHECK (((interval_start IS NULL) = (interval_end IS NULL))),
    CONSTRAINT only_the_uncommitted_is_held CHECK (((held_reason IS NULL) OR (committed_attempt IS NULL))),
    CONSTRAINT txid_starts_at_1 CHECK ((txid >= 1)),
    CONSTRAINT verdict CHECK ((verdict = ANY (ARRAY['EXACT'::text, 'COUNTED'::text])))
);

CREATE INDEX transaction_by_interval ON reliability.transaction USING btree (topology, interval_start);

CREATE INDEX transaction_by_run ON reliability.transaction USING btree (dag_id, run_id);

CREATE INDEX uncommitted_transaction ON reliability.transaction USING btree (topology, txid) WHERE (committed_attempt IS NULL);

CREATE TABLE reliability.verified (
    topology text NOT NULL,
    database text NOT NULL,
    state text NOT NULL,
    verified_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
    wrong text,
    CONSTRAINT verified_pkey PRIMARY KEY (topology, database, state)
);

CREATE OR REPLACE FUNCTION reliability.acknowledge(p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_sink text, p_partition integer, p_write_id uuid, p_xor bigint, p_count bigint, p_rows bigint, p_digest bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.attempt a
       SET lease_until = reliability.renewed_lease(a)
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND nonce = p_nonce AND status = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % is not processing', p_txid, p_attempt_id, p_topology
            USING ERRCODE = 'RL001';
    END IF;
    INSERT INTO reliability.ack
           (topology, txid, attempt_id, sink, partition, write_id, xor, count, rows, digest)
    VALUES (p_topology, p_txid, p_attempt_id, p_sink, p_partition, p_write_id,
            p_xor, p_count, p_rows, p_digest);
    UPDATE reliability.sink
       SET ack_val = ack_val # p_xor, unacked = unacked - p_count
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND sink = p_sink;
END $function$;

CREATE OR REPLACE FUNCTION reliability.advance_checkpoint(p_topology text, p_commit_number bigint, p_changes integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.checkpoint
       SET commit_number = p_commit_number + p_changes - 1, changed_at = clock_timestamp()
     WHERE topology = p_topology AND phase = 'COMMITTED' AND commit_number = p_commit_number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the checkpoint of % is not at c=%', p_topology, p_commit_number - 1
            USING ERRCODE = 'RL002';
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.advance_state(p_topology text, p_state text, p_commit_number bigint, p_changes integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.state SET commit_number = p_commit_number + p_changes - 1
     WHERE topology = p_topology AND state = p_state AND commit_number = p_commit_number - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'advance_state: % of % is not at c=%',
            p_state, p_topology, p_commit_number - 1 USING ERRCODE = 'RL002';
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.begin_seal(p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_task text)
 RETURNS TABLE(batch_meta jsonb, emitted_xor bigint, emitted_count bigint, sinks jsonb)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.attempt a
       SET status = 'SEALING', lease_until = clock_timestamp() + a.lease, sealing_task = p_task
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.status = 'PROCESSING';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT coalesce(a.batch_meta, t.batch_meta), coalesce(a.emitted_xor, t.emitted_xor),
           coalesce(a.emitted_count, t.emitted_count), coalesce((
           SELECT jsonb_agg(jsonb_build_object(
                      'sink', s.sink, 'step', s.step, 'partitions', s.partitions,
                      'ack_val', s.ack_val, 'unacked', s.unacked,
                      'acked_partitions', k.partitions, 'digests', k.digests,
                      'aside_xor', x.xor, 'aside_count', x.count,
                      'table_id', own.table_id) ORDER BY s.sink)
             FROM reliability.sink s
             LEFT JOIN reliability.attempt_table own
               ON own.topology = s.topology AND own.state = s.sink AND own.txid = s.txid
                  AND own.attempt_id = s.attempt_id
             LEFT JOIN LATERAL (
                  SELECT coalesce(jsonb_agg(partition ORDER BY partition), '[]') AS partitions,
                         coalesce(jsonb_agg(digest ORDER BY partition), '[]') AS digests
                    FROM reliability.ack
                   WHERE topology = s.topology AND txid = s.txid AND attempt_id = s.attempt_id
                     AND sink = s.sink) AS k ON true
             LEFT JOIN LATERAL (
                  SELECT coalesce(bit_xor(xor), 0) AS xor, coalesce(sum(count), 0)::bigint AS count
                    FROM reliability.set_aside
                   WHERE topology = s.topology AND txid = s.txid AND attempt_id = s.attempt_id
                     AND sink = s.sink) AS x ON true
            WHERE s.topology = a.topology AND s.txid = a.txid AND s.attempt_id = a.attempt_id), '[]')
      FROM reliability.attempt a
      JOIN reliability.transaction t ON t.topology = a.topology AND t.txid = a.txid
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id;
END $function$;

CREATE OR REPLACE FUNCTION reliability.check_coordinator(p_topology text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_participant text;
BEGIN
    SELECT participant INTO v_participant FROM reliability.topology WHERE topology = p_topology;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the ledger has no topology called %', p_topology USING ERRCODE = 'RL002';
    END IF;
    IF v_participant IS NOT NULL THEN
        RAISE EXCEPTION 'the ledger of % is in another database', p_topology
            USING ERRCODE = 'RL003';
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.check_rights(p_schemas text[], p_tables text[], p_rights text[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_lacking text[];
BEGIN
    SELECT array_agg(lacking.what ORDER BY lacking.place, lacking.what) INTO v_lacking
      FROM (WITH wanted AS (
                SELECT n.oid AS schema_id, n.nspname, c.oid AS table_id, c.relname,
                       string_to_array(asked.rights, ', ') AS rights
                  FROM (SELECT * FROM unnest(p_schemas, p_tables, p_rights)
                        UNION ALL
                        VALUES ('reliability', 'ack', 'SELECT, INSERT'),
                               ('reliability', 'attempt', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'attempt_event', 'INSERT'),
                               ('reliability', 'attempt_step', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'attempt_table', 'SELECT, INSERT, UPDATE, DELETE'),
                               ('reliability', 'audit', 'SELECT, INSERT'),
                               ('reliability', 'audit_result', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'checkpoint', 'SELECT, UPDATE'),
                               ('reliability', 'code', 'SELECT, INSERT'),
                               ('reliability', 'commit_log', 'SELECT, INSERT'),
                               ('reliability', 'contribution', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'correction', 'SELECT'),
                               ('reliability', 'difference', 'SELECT, INSERT, DELETE'),
                               ('reliability', 'exclusion', 'SELECT'),
                               ('reliability', 'quarantined_row', 'SELECT, INSERT, DELETE'),
                               ('reliability', 'request', 'SELECT, UPDATE'),
                               ('reliability', 'set_aside', 'SELECT, INSERT'),
                               ('reliability', 'sink', 'SELECT, INSERT, UPDATE'),
                               ('reliability', 'skip', 'SELECT'),
                               ('reliability', 'source_item', 'SELECT, UPDATE, DELETE'),
                               ('reliability', 'state', 'SELECT, UPDATE'),
                               ('reliability', 'topology', 'SELECT, UPDATE'),
                               ('reliability', 'transaction', 'SELECT, UPDATE')
                       ) AS asked(schema, name, rights)
                  JOIN pg_namespace n ON n.nspname = asked.schema
                  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
            )
            SELECT DISTINCT 1 AS place, format('USAGE ON SCHEMA %I', w.nspname) AS what
              FROM wanted w WHERE NOT has_schema_privilege(w.schema_id, 'USAGE')
             UNION ALL
            SELECT 2, format('%s ON TABLE %I.%I', string_agg(r.name, ', ' ORDER BY r.place),
                             w.nspname, w.relname)
              FROM wanted w, unnest(w.rights) WITH ORDINALITY AS r(name, place)
             WHERE NOT has_table_privilege(w.table_id, r.name)
             GROUP BY w.nspname, w.relname
             UNION ALL
            SELECT 3, format('TEMPORARY ON DATABASE %I', current_database())
             WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')) AS lacking;
    IF v_lacking IS NOT NULL THEN
        RAISE EXCEPTION 'role % lacks %', current_user, array_to_string(v_lacking, '; ')
            USING ERRCODE = 'insufficient_privilege',
                  HINT = (SELECT string_agg(format('GRANT %s TO %I;', what, current_user), ' ')
                            FROM unnest(v_lacking) AS what);
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.claim_step(p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_request_id bigint, p_step text, p_task text, p_submit_lease double precision)
 RETURNS SETOF text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.attempt_step d
       SET status = 'RUNNING', claimed_by = p_task, claimed_at = clock_timestamp()
      FROM reliability.attempt a
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.request_id = p_request_id AND a.status = 'PROCESSING'
       AND d.topology = a.topology AND d.txid = a.txid AND d.attempt_id = a.attempt_id
       AND d.step = p_step AND d.status = 'OPEN';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE reliability.attempt
       SET lease_until = greatest(lease_until,
                                  clock_timestamp() + p_submit_lease * interval '1 second')
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND status = 'PROCESSING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % was ended', p_txid, p_attempt_id, p_topology
            USING ERRCODE = 'RL001';
    END IF;
    RETURN NEXT p_step;
END $function$;

CREATE OR REPLACE FUNCTION reliability.declare_partitions(p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_sink text, p_partitions integer, p_kinds text[], p_reasons text[], p_xors bigint[], p_counts bigint[])
 RETURNS TABLE(ack_val bigint, unacked bigint)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.sink s
       SET partitions = p_partitions,
           ack_val = s.ack_val # coalesce((SELECT bit_xor(x) FROM unnest(p_xors) AS x), 0),
           unacked = s.unacked - coalesce((SELECT sum(c) FROM unnest(p_counts) AS c), 0)
      FROM reliability.attempt a
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.status = 'PROCESSING'
       AND s.topology = a.topology AND s.txid = a.txid AND s.attempt_id = a.attempt_id
       AND s.sink = p_sink AND s.partitions IS NULL
    RETURNING s.ack_val, s.unacked INTO ack_val, unacked;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO reliability.set_aside
           (topology, txid, attempt_id, sink, kind, reason, xor, count)
    SELECT p_topology, p_txid, p_attempt_id, p_sink, aside.*
      FROM unnest(p_kinds, p_reasons, p_xors, p_counts) AS aside(kind, reason, xor, count);
    RETURN NEXT;
END $function$;

CREATE OR REPLACE FUNCTION reliability.drop_attempt_table(p_topology text, p_state text, p_txid bigint, p_attempt_id integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_table_id bigint;
BEGIN
    DELETE FROM reliability.attempt_table
     WHERE topology = p_topology AND state = p_state AND txid = p_txid AND attempt_id = p_attempt_id
    RETURNING table_id INTO v_table_id;
    IF FOUND THEN
        EXECUTE format('DROP TABLE reliability_contribution.attempt_%s', v_table_id);
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION reliability.end_seal(p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_sinks text[], p_rows bigint[], p_digests text[])
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_found bigint;
BEGIN
    UPDATE reliability.attempt
       SET status = 'PROCESSED', lease_until = NULL, processed_at = clock_timestamp()
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id
       AND nonce = p_nonce AND status = 'SEALING';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt % %:% was ended', p_topology, p_txid, p_attempt_id
            USING ERRCODE = 'RL001';
    END IF;
    UPDATE reliability.sink s
       SET staged_rows = staged.rows, contribution_digest = staged.digest
      FROM unnest(p_sinks, p_rows, p_digests) AS staged(sink, rows, digest)
     WHERE s.topology = p_topology AND s.txid = p_txid AND s.attempt_id = p_attempt_id
       AND s.sink = staged.sink;
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('end_seal', v_found, cardinality(p_sinks));
END $function$;

CREATE OR REPLACE FUNCTION reliability.expect_rows(p_write text, p_found bigint, p_expected bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF p_found IS DISTINCT FROM p_expected THEN
        RAISE EXCEPTION '%: % rows instead of %', p_write, p_found, p_expected
            USING ERRCODE = 'RL002';
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.fail_successor()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    UPDATE reliability.attempt
       SET status = 'FAILED', lease_until = NULL, ended_at = clock_timestamp(),
           reason_code = 'PREDECESSOR_FAILED',
           reason = format('its batch starts where %s:%s ended, and that attempt has ended',
                           NEW.txid, NEW.attempt_id)
     WHERE topology = NEW.topology AND txid = NEW.txid + 1
       AND predecessor_attempt = NEW.attempt_id
       AND status IN ('PROCESSING', 'SEALING', 'PROCESSED');
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION reliability.find_violations(p_query text, OUT violations bigint, OUT examples text[], OUT problem text, OUT error_code text)
 RETURNS record
 LANGUAGE plpgsql
 STABLE
 SET standard_conforming_strings TO 'on'
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_is_answered boolean := false;
BEGIN
    PERFORM set_config('transaction_read_only', 'on', true);
    EXECUTE 'SELECT count(*), coalesce(array_agg(found.example ORDER BY found.place)'
        ' FILTER (WHERE found.place <= 3), ''{}'') FROM (SELECT row_number() OVER () AS place,'
        ' CASE WHEN row_number() OVER () <= 3 THEN left(row_to_json(one.*)::text, 200) END AS example'
        ' FROM (' || p_query || E'\n) AS one) AS found'
       INTO violations, examples;
    v_is_answered := true;
    RAISE EXCEPTION 'undo it';
EXCEPTION
    WHEN query_canceled OR assert_failure OR OTHERS THEN
        IF NOT v_is_answered THEN
            GET STACKED DIAGNOSTICS error_code = RETURNED_SQLSTATE, problem = MESSAGE_TEXT;
            violations := NULL;
            examples := NULL;
        END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.finish_requests(p_topology text, p_txids bigint[], p_attempt_ids integer[])
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- Keys that a refrozen txid no longer has are free, and can be emitted as new rows.
    DELETE FROM reliability.source_item
     WHERE topology = p_topology AND txid = ANY(p_txids) AND refrozen_part = '{}';
    UPDATE reliability.source_item SET part = refrozen_part, refrozen_part = NULL
     WHERE topology = p_topology AND txid = ANY(p_txids) AND refrozen_part <> '{}';

    -- Satisfy the requests that were made before the committed attempt was granted. A parked txid
    -- satisfies no request (C7), and a commit satisfies no dry run.
    UPDATE reliability.request r
       SET status = 'SATISFIED', ended_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids) AS done(txid, attempt_id)
      JOIN reliability.attempt a ON a.topology = p_topology AND a.txid = done.txid
           AND a.attempt_id = done.attempt_id
     WHERE a.verdict IS DISTINCT FROM 'PARKED'
       AND r.topology = p_topology AND r.txid = done.txid AND r.status IN ('OPEN', 'GIVEN_UP')
       AND (r.kind = 'COMMIT' OR r.granted_after < a.attempt_id) AND NOT r.is_dry_run;

    -- Close the requests for a parked txid as not done.
    UPDATE reliability.request r
       SET status = 'PARKED', ended_at = clock_timestamp(), reason = 'parked: ' || a.verdict_reason
      FROM unnest(p_txids, p_attempt_ids) AS done(txid, attempt_id)
      JOIN reliability.attempt a ON a.topology = p_topology AND a.txid = done.txid
           AND a.attempt_id = done.attempt_id
     WHERE a.verdict = 'PARKED'
       AND r.topology = p_topology AND r.txid = done.txid AND r.status IN ('OPEN', 'GIVEN_UP');
END $function$;

CREATE OR REPLACE FUNCTION reliability.move_pointers(p_topology text, p_commit_number bigint, p_txids bigint[], p_attempt_ids integer[], p_nonces uuid[], p_replaced_attempt integer)
 RETURNS void
 LANGUAGE plpgsql
 SET plan_cache_mode TO 'force_generic_plan'
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_changes CONSTANT integer := cardinality(p_txids);
    v_last    CONSTANT bigint := p_txids[v_changes];
    v_found   bigint;
BEGIN
    UPDATE reliability.attempt a SET status = 'COMMITTED', ended_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids, p_nonces) AS planned(txid, attempt_id, nonce)
     WHERE a.topology = p_topology AND a.txid = planned.txid
       AND a.attempt_id = planned.attempt_id
       AND a.nonce = planned.nonce AND a.status = 'PROCESSED';
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('commit_attempt', v_found, v_changes);

    UPDATE reliability.transaction t
       SET committed_attempt = planned.attempt_id,
           commit_number = p_commit_number + planned.place - 1, committed_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids) WITH ORDINALITY AS planned(txid, attempt_id, place)
     WHERE t.topology = p_topology AND t.txid = planned.txid
       AND t.committed_attempt IS NOT DISTINCT FROM p_replaced_attempt;
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('commit_transaction', v_found, v_changes);

    UPDATE reliability.topology
       SET commit_number = p_commit_number + v_changes - 1, curr_txid = greatest(curr_txid, v_last + 1)
     WHERE topology = p_topology AND commit_number = p_commit_number - 1
       AND curr_txid >= p_txids[1];
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('advance_topology', v_found, 1);

    INSERT INTO reliability.commit_log
           (topology, commit_number, kind, txid, attempt_id, replaced_attempt, rollbacks)
    SELECT p_topology, p_commit_number + planned.place - 1,
           CASE WHEN p_replaced_attempt IS NULL THEN 'COMMIT' ELSE 'REPLAY' END,
           planned.txid, planned.attempt_id, p_replaced_attempt,
           (SELECT rollbacks FROM reliability.topology WHERE topology = p_topology)
      FROM unnest(p_txids, p_attempt_ids) WITH ORDINALITY AS planned(txid, attempt_id, place);
END $function$;

CREATE OR REPLACE FUNCTION reliability.open_checkpoint()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    INSERT INTO reliability.checkpoint (topology, commit_number)
    VALUES (NEW.topology, NEW.commit_number);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION reliability.record_attempt_event()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    INSERT INTO reliability.attempt_event (topology, txid, attempt_id, status, reason_code, reason)
    VALUES (NEW.topology, NEW.txid, NEW.attempt_id, NEW.status, NEW.reason_code, NEW.reason);
    RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION reliability.record_audit(p_topology text, p_txids bigint[], p_attempt_ids integer[], p_state text, p_name text, p_violations bigint, p_examples text[], p_problem text, p_error_code text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_found bigint;
BEGIN
    UPDATE reliability.audit_result r
       SET violations = p_violations, examples = p_examples, problem = p_problem,
           error_code = p_error_code, audited_at = clock_timestamp()
      FROM unnest(p_txids, p_attempt_ids) AS audited(txid, attempt_id), reliability.audit d
     WHERE r.topology = p_topology AND r.txid = audited.txid
       AND r.attempt_id = audited.attempt_id AND r.state = p_state
       AND d.digest = r.digest AND d.name = p_name AND d.of = 'table';
    GET DIAGNOSTICS v_found = ROW_COUNT;
    PERFORM reliability.expect_rows('record_audit', v_found, cardinality(p_txids));
END $function$;

CREATE OR REPLACE FUNCTION reliability.record_contribution(p_topology text, p_state text, p_txid bigint, p_attempt_id integer, p_replaced_attempt integer, p_is_kept boolean, p_staged bigint, p_keys bigint, p_applied bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    v_sealed   bigint;
    v_rows     bigint := CASE WHEN p_is_kept THEN p_staged ELSE p_keys END;
    v_presence text := CASE WHEN v_rows = 0 THEN 'empty'
                            WHEN p_is_kept THEN 'present' ELSE 'compacted' END;
BEGIN
    SELECT staged_rows INTO v_sealed FROM reliability.sink
     WHERE topology = p_topology AND txid = p_txid AND attempt_id = p_attempt_id AND sink = p_state;
    IF v_sealed IS DISTINCT FROM p_staged THEN
        RAISE EXCEPTION '%__%: % rows were sealed for attempt %:%, but % exist',
            p_topology, p_state, v_sealed, p_txid, p_attempt_id, p_staged USING ERRCODE = 'RL002';
    END IF;
    IF p_keys <> p_applied THEN
        RAISE EXCEPTION '%: txid % has % keys, but only % rows were older than it',
            (SELECT target_table FROM reliability.state
              WHERE topology = p_topology AND state = p_state),
            p_txid, p_keys, p_applied USING ERRCODE = 'RL002';
    END IF;
    IF p_replaced_attempt IS NULL THEN
        INSERT INTO reliability.contribution (topology, state, txid, attempt_id, presence, rows)
        VALUES (p_topology, p_state, p_txid, p_attempt_id, v_presence, v_rows);
        RETURN;
    END IF;
    UPDATE reliability.contribution
       SET attempt_id = p_attempt_id, rows = v_rows, presence = v_presence
     WHERE topology = p_topology AND state = p_state AND txid = p_txid
       AND attempt_id = p_replaced_attempt;
    IF NOT FOUND THEN
        RAISE EXCEPTION '%__%: the contribution of txid % is not that of attempt %',
            p_topology, p_state, p_txid, p_replaced_attempt USING ERRCODE = 'RL002';
    END IF;
END $function$;

CREATE OR REPLACE FUNCTION reliability.renewed_lease(a reliability.attempt)
 RETURNS timestamp with time zone
 LANGUAGE sql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    SELECT CASE WHEN EXISTS (
                SELECT FROM reliability.attempt_step d
                 WHERE d.topology = a.topology AND d.txid = a.txid
                   AND d.attempt_id = a.attempt_id
                   AND d.status = 'RUNNING' AND d.started_at IS NULL)
           THEN greatest(a.lease_until, clock_timestamp() + a.lease)
           ELSE clock_timestamp() + a.lease END
$function$;

CREATE OR REPLACE FUNCTION reliability.timeline()
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $function$;

CREATE VIEW reliability.accounts (topology text, txid bigint, attempt_id integer, status text, state text, verdict text, emitted bigint, applied bigint, dropped bigint, quarantined bigint, added_rows bigint, reasons jsonb) AS ...;

CREATE VIEW reliability.attempt_batch (topology text, txid bigint, attempt_id integer, batch_meta jsonb, emitted_xor bigint, emitted_count bigint) AS ...;

CREATE VIEW reliability.attempt_timing (topology text, txid bigint, attempt_id integer, status text, granted_at timestamp with time zone, emit double precision, queue double precision, submit double precision, read double precision, stage double precision, exit double precision, seal double precision, wait double precision, commit double precision, total double precision) AS ...;

CREATE VIEW reliability.audits (topology text, txid bigint, interval_start timestamp with time zone, interval_end timestamp with time zone, attempt_id integer, status text, state text, audit text, of text, severity text, violations bigint, examples text[], problem text, error_code text, audited_at timestamp with time zone, query text) AS ...;

CREATE VIEW reliability.blocked_transaction (topology text, txid bigint, interval_start timestamp with time zone, interval_end timestamp with time zone, dag_id text, run_id text, emitted_at timestamp with time zone, held_reason text) AS ...;

CREATE VIEW reliability.commit_position (topology text, "position" jsonb) AS ...;

CREATE VIEW reliability.commits_by_hour (topology text, hour timestamp with time zone, commits bigint, replays bigint, rollbacks bigint, rows bigint, median_commit_seconds double precision, median_seconds double precision) AS ...;

CREATE VIEW reliability.commits_by_minute (topology text, minute timestamp with time zone, commits bigint, replays bigint, rollbacks bigint, rows bigint, median_commit_seconds double precision, median_seconds double precision) AS ...;

CREATE VIEW reliability.contribution_tables (topology text, state text, relation regclass) AS ...;

CREATE VIEW reliability.failures (topology text, txid bigint, interval_start timestamp with time zone, interval_end timestamp with time zone, attempt_id integer, status text, ended_at timestamp with time zone, reason_code text, reason text, has_committed boolean) AS ...;

CREATE VIEW reliability.metrics (topology text, lag_txids bigint, lag_seconds double precision, processing bigint, processed bigint, attempts_last_hour bigint, failed_last_hour bigint, fenced_last_hour bigint, attempts bigint, failed bigint, fenced bigint, quarantined_rows bigint, rows_committed bigint, commits bigint, last_commit_at timestamp with time zone, last_commit_seconds double precision, contribution_bytes bigint, blocked_txids bigint, blocked integer, held integer, paused integer) AS ...;

CREATE VIEW reliability.quarantine (topology text, txid bigint, interval_start timestamp with time zone, interval_end timestamp with time zone, step text, number integer, reason text, item text, "row" bigint, contents text, is_cut boolean, xor bigint, count bigint, attempt_id integer, committed_at timestamp with time zone, source text) AS ...;

CREATE VIEW reliability.request_outcome (request_id bigint, topology text, txid bigint, dag_id text, run_id text, number integer, kind text, is_dry_run boolean, status text, reason text, granted_after integer, is_done boolean) AS ...;
