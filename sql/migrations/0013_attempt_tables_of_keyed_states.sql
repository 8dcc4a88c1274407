-- Attempts of states with a key may have tables of their own too. Of a state that keeps no
-- contributions, the commit drops the table, in the round trip of its other writes.
CREATE FUNCTION reliability.drop_attempt_table(
    p_topology text, p_state text, p_txid bigint, p_attempt_id integer
) RETURNS void LANGUAGE plpgsql AS $$
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
$$;
