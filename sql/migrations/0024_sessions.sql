-- The ledger's functions find only Postgres's own functions, operators and types without a schema,
-- whatever the path of the session that calls them is: that of an earlier release, of a reader of a view.
DO $$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN SELECT oid FROM pg_catalog.pg_proc
                       WHERE pronamespace = 'reliability'::regnamespace LOOP
        EXECUTE format('ALTER ROUTINE %s SET search_path = pg_catalog, pg_temp', v_function);
    END LOOP;
END $$;
