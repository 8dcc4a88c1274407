-- Tables of attempts' own are made, changed and dropped by these functions, which run as the owner of
-- the ledger: a task needs no right to create anything. They take numbers and names, no types and no
-- expressions, and touch no table but that of the number. Who may call them is in 0012_roles.sql.

-- The name of the table with a number.
CREATE FUNCTION reliability.name_of_attempt_table(p_table_id bigint) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'reliability_contribution.attempt_' || p_table_id
$$;

-- Make the table that has just been numbered. If it inherits, who reads the contributions reads it
-- too; with its check, a query for another txid passes over it. VACUUM must not shorten one whose
-- size tells what was sealed, until it has committed. Executors with a role of their own may insert
-- into it, as long as they show the attempt's nonce, and name neither txid nor attempt. Its rows can
-- be deleted where a server publishes all tables.
-- Contract: it was numbered for this attempt and the state with these contributions, or RL002; the
-- session has the owner's or the coordinator's role, or insufficient_privilege.
CREATE FUNCTION reliability.create_attempt_table(
    p_table_id bigint, p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid,
    p_contribution text, p_inherits boolean, p_is_measured boolean, p_for_executors boolean
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_table text := reliability.name_of_attempt_table(p_table_id);
    v_executor text;
    v_coordinator text;
    -- as who calls: the role that its session has set, as one that does not inherit has to
    v_caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
    PERFORM FROM reliability.attempt_table own
       JOIN reliability.attempt a USING (topology, txid, attempt_id)
       JOIN reliability.state s USING (topology, state)
      WHERE own.table_id = p_table_id AND a.topology = p_topology AND a.txid = p_txid
        AND a.attempt_id = p_attempt_id AND a.nonce = p_nonce
        AND s.contribution_table = p_contribution;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no table % of % can be made', p_table_id, p_contribution
            USING ERRCODE = 'RL002';
    END IF;
    EXECUTE format(
        CASE WHEN p_inherits
             THEN 'CREATE TABLE %1$s (CHECK (_txid = %3$s AND _attempt_id = %4$s))'
                  ' INHERITS (reliability_contribution.%2$I)'
             ELSE 'CREATE TABLE %1$s (LIKE reliability_contribution.%2$I)' END
        || CASE WHEN p_is_measured THEN ' WITH (autovacuum_enabled = false)' ELSE '' END,
        v_table, p_contribution, p_txid, p_attempt_id);
    EXECUTE format('ALTER TABLE %s ALTER _txid SET DEFAULT %s, ALTER _attempt_id SET DEFAULT %s,'
                   ' REPLICA IDENTITY FULL', v_table, p_txid, p_attempt_id);
    SELECT name INTO v_coordinator FROM reliability.role JOIN pg_roles ON rolname = name
     WHERE kind = 'coordinator';
    IF FOUND THEN
        EXECUTE format('GRANT SELECT, INSERT ON %s TO %I', v_table, v_coordinator);
    END IF;
    IF NOT pg_has_role(v_caller, current_user, 'USAGE')
       AND (v_coordinator IS NULL OR NOT pg_has_role(v_caller, v_coordinator, 'USAGE')) THEN
        RAISE EXCEPTION 'role % could not write to a table of %', v_caller, current_user
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT p_for_executors THEN
        RETURN;
    END IF;
    SELECT name INTO v_executor FROM reliability.role JOIN pg_roles ON rolname = name
     WHERE kind = 'executor';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the ledger has no role for executors'
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Run `reliability migrate --roles`, or unset RELIABILITY_EXECUTOR_DSN.';
    END IF;
    EXECUTE format('GRANT INSERT (%s) ON %s TO %I', (
        SELECT string_agg(format('%I', attname), ', ' ORDER BY attnum) FROM pg_attribute
         WHERE attrelid = v_table::regclass AND attnum > 0 AND NOT attisdropped
           AND attname NOT IN ('_txid', '_attempt_id')), v_table, v_executor);
    EXECUTE format('CREATE TRIGGER only_its_attempt BEFORE INSERT ON %s FOR EACH STATEMENT'
                   ' EXECUTE FUNCTION reliability.check_nonce(%s)', v_table, p_table_id);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER only_its_attempt', v_table);
END $$;

-- Raise unless the session shows the nonce of the attempt whose table it writes to.
-- Contract: the attempt is PROCESSING with this nonce, or RL001.
CREATE FUNCTION reliability.check_nonce() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM reliability.attempt_table own
       JOIN reliability.attempt a USING (topology, txid, attempt_id)
      WHERE own.table_id = TG_ARGV[0]::bigint AND a.status = 'PROCESSING'
        AND a.nonce::text = current_setting('reliability.nonce', true);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this session stages for no attempt that is processing'
            USING ERRCODE = 'RL001';
    END IF;
    RETURN NULL;
END $$;

-- A part of the rows that an attempt has staged for a state in a table of its own, for who knows its
-- nonce: the executors of a later step. A row is always in the same part.
-- Contract: the attempt is PROCESSING with this nonce, and has such a table, or RL001.
CREATE FUNCTION reliability.read_staged(
    p_topology text, p_txid bigint, p_attempt_id integer, p_nonce uuid, p_state text,
    p_columns text[], p_parts integer, p_part integer
) RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_table_id bigint;
BEGIN
    SELECT own.table_id INTO v_table_id
      FROM reliability.attempt a JOIN reliability.attempt_table own USING (topology, txid, attempt_id)
     WHERE a.topology = p_topology AND a.txid = p_txid AND a.attempt_id = p_attempt_id
       AND a.nonce = p_nonce AND a.status = 'PROCESSING' AND own.state = p_state;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %:% of % is not processing, or has no table for %',
            p_txid, p_attempt_id, p_topology, p_state USING ERRCODE = 'RL001';
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT %s FROM %s WHERE abs(_x %% $1) = $2', (
            SELECT string_agg(format('%I', name), ', ' ORDER BY place)
              FROM unnest(p_columns) WITH ORDINALITY AS c(name, place)),
        reliability.name_of_attempt_table(v_table_id)) USING p_parts, p_part;
END $$;

-- Let executors write no more to a table, and wait until no session does. Then it can be counted.
CREATE FUNCTION reliability.close_attempt_table(p_table_id bigint)
RETURNS TABLE (is_merged boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_table text := reliability.name_of_attempt_table(p_table_id);
    v_executor text;
BEGIN
    SELECT name INTO v_executor FROM reliability.role JOIN pg_roles ON rolname = name
     WHERE kind = 'executor';
    IF FOUND AND EXISTS (SELECT FROM pg_trigger WHERE tgrelid = v_table::regclass
                            AND tgname = 'only_its_attempt') THEN
        EXECUTE format('REVOKE ALL ON %s FROM %I', v_table, v_executor);
        EXECUTE format('LOCK TABLE %s IN SHARE MODE', v_table);
    END IF;
    RETURN QUERY SELECT t.is_merged FROM reliability.attempt_table t WHERE t.table_id = p_table_id;
END $$;

-- Index a table by its key, and record if no key is there twice: as a rule Spark has grouped the rows,
-- but what differs there may be equal here. Then tell the planner how many rows and keys the table
-- has. The index comes first: it waits until nobody writes. Safe to repeat.
CREATE FUNCTION reliability.index_attempt_table(p_table_id bigint, p_key text[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_table text := reliability.name_of_attempt_table(p_table_id);
    v_key text := (SELECT string_agg(format('%I', name), ', ' ORDER BY place)
                     FROM unnest(p_key) WITH ORDINALITY AS k(name, place));
BEGIN
    BEGIN
        EXECUTE format('CREATE UNIQUE INDEX IF NOT EXISTS attempt_%s_key ON %s (%s) NULLS NOT DISTINCT',
                       p_table_id, v_table, v_key);
        UPDATE reliability.attempt_table SET is_folded = true WHERE table_id = p_table_id;
    EXCEPTION WHEN unique_violation THEN
        EXECUTE format('CREATE INDEX IF NOT EXISTS attempt_%s_keys ON %s (%s)',
                       p_table_id, v_table, v_key);
    END;
    EXECUTE format('ANALYZE %s (_txid, _attempt_id, %s)', v_table, v_key);
END $$;

-- Let VACUUM work on a table that has become part of a view.
CREATE FUNCTION reliability.keep_attempt_table(p_table_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s RESET (autovacuum_enabled)',
                   reliability.name_of_attempt_table(p_table_id));
END $$;

-- Drop a table and forget it; safe to repeat.
CREATE FUNCTION reliability.drop_attempt_table(p_table_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS %s', reliability.name_of_attempt_table(p_table_id));
    DELETE FROM reliability.attempt_table WHERE table_id = p_table_id;
END $$;

-- Drop a table whose rows have been committed elsewhere, unless somebody holds it, such as a pg_dump
-- that began before, or VACUUM: the commit would wait, and fail. A sweep drops what is left.
CREATE FUNCTION reliability.drop_committed_table(p_table_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT',
                   reliability.name_of_attempt_table(p_table_id));
    PERFORM reliability.drop_attempt_table(p_table_id);
EXCEPTION WHEN lock_not_available THEN
    RETURN;
END $$;

-- Drop the table of an attempt at a state that keeps no contributions, if it has one, in the round
-- trip of its commit's other writes.
CREATE FUNCTION reliability.drop_table_of_attempt(
    p_topology text, p_state text, p_txid bigint, p_attempt_id integer
) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT reliability.drop_committed_table(table_id) FROM reliability.attempt_table
     WHERE topology = p_topology AND state = p_state AND txid = p_txid AND attempt_id = p_attempt_id
$$;

-- End the session of a Spark task, whose name has its attempt, or a hash if that is long. The owner must
-- have the session's role, or pg_signal_backend.
CREATE FUNCTION reliability.end_session(p_pid integer, p_application_name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_terminate_backend(s.pid) FROM pg_stat_activity s
     WHERE s.pid = p_pid AND s.datname = current_database()
       AND s.application_name = p_application_name
       AND s.application_name ~ '^reliability .*(:[0-9]+|~[0-9a-f]{8})$'
$$;
