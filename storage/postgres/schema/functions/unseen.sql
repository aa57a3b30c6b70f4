-- unseen fails to serialize if an id was taken after this transaction's snapshot. No query shows
-- that, but an insert that conflicts does: the function inserts each id into each table, and deletes
-- it again.
CREATE FUNCTION {schema}.unseen(queues int4[], ids bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	SELECT 0, 0, 0, u.queue, {schema}.line(u.queue, {state.none}), 0, 0, u.id, '', '', ''
	FROM unnest(queues, ids) AS u (queue, id)
	ON CONFLICT DO NOTHING;
	INSERT INTO {schema}.ended (expires, version, at, queue, line, flags, priority, id, past, record)
	SELECT 0, 0, 0, u.queue, {schema}.line(u.queue, {state.none}), 0, 0, u.id, '', ''
	FROM unnest(queues, ids) AS u (queue, id)
	ON CONFLICT DO NOTHING;
	DELETE FROM {schema}.tasks t USING (
		SELECT (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
	) u WHERE t.ctid = u.c AND t.version = 0;
	DELETE FROM {schema}.ended t USING (
		SELECT (SELECT x.ctid FROM {schema}.ended x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
	) u WHERE t.ctid = u.c AND t.version = 0;
END $$;
