-- shift moves the rows of tasks in sides to other queues.
CREATE FUNCTION {schema}.shift(queues int4[], ids bytea[], targets int4[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.sides s SET queue = u.target FROM (
		SELECT u.target, (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, targets) AS u (queue, id, target) OFFSET 0
	) u WHERE s.ctid = u.c;
END $$;
