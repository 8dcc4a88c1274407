-- begin --
-- Every ledger transaction says itself what it is, whatever the server's or the role's defaults.
-- Who waits for a row lets go after 10 s; who falls asleep inside a transaction loses it.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '60s';

-- commit --
COMMIT;

-- roll_back --
ROLLBACK;

-- set_lock_timeout --
SELECT set_config('lock_timeout', %(seconds)s || 's', true);
