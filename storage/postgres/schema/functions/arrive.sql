-- arrive checks that no task has the ids of ended tasks that come from another queue: a taken id is a
-- unique_violation. A transaction that inserts such an id meanwhile waits.
CREATE FUNCTION {schema}.arrive(queues int4[], ids bytea[], patient bool) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	SELECT 0, 0, 0, u.queue, {schema}.line(u.queue, {state.none}), 0, 0, u.id, '', '', ''
	FROM unnest(queues, ids) AS u (queue, id);
	PERFORM {schema}.drop(queues, ids, false);
END $$;
