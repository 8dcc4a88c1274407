-- Run the query of an audit, as before; its columns may have any names, and the exception that undoes what
-- it does can no longer be mistaken for one of the query's own.
CREATE OR REPLACE FUNCTION reliability.find_violations(
    p_query text, OUT violations bigint, OUT examples text[], OUT problem text, OUT error_code text
) LANGUAGE plpgsql STABLE SET standard_conforming_strings = on AS $$
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
END $$;
