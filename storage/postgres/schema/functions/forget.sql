-- forget deletes the rows of tasks in sides.
CREATE FUNCTION {schema}.forget(queues int4[], ids bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.sides s USING (
		SELECT (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
	) u WHERE s.ctid = u.c;
END $$;
