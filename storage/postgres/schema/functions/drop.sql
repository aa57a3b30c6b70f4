-- drop deletes tasks that load has locked; with kept, tasks that have ended.
CREATE FUNCTION {schema}.drop(queues int4[], ids bytea[], kept bool) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	IF kept THEN
		DELETE FROM {schema}.ended t USING (
			SELECT (SELECT x.ctid FROM {schema}.ended x WHERE x.queue = u.queue AND x.id = u.id) AS c
			FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
		) u WHERE t.ctid = u.c;
	ELSE
		DELETE FROM {schema}.tasks t USING (
			SELECT (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
			FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
		) u WHERE t.ctid = u.c;
	END IF;
END $$;
