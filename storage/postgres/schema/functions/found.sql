-- found returns the holders of unique keys. It first frees the keys for life of tasks that were set apart, whose
-- records do not name their keys, and of tasks whose rows somebody deleted.
CREATE FUNCTION {schema}.found(queues int4[], wanted text[]) RETURNS TABLE (
	o_n int4, o_id bytea, o_until int8
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.keys k WHERE k.ctid = ANY (ARRAY(
		SELECT h.c FROM unnest(queues, wanted) AS u (queue, key), LATERAL (
			SELECT x.ctid AS c, x.queue, x.id FROM {schema}.keys x
			WHERE x.queue = u.queue AND x.key = u.key AND x.until = 0 OFFSET 0
		) h WHERE NOT EXISTS (SELECT FROM {schema}.tasks t
			WHERE t.queue = h.queue AND t.id = h.id AND {schema}.state(t.line) <> {state.damaged} OFFSET 0)));
	RETURN QUERY
	SELECT u.n::int4, k.id, k.until
	FROM unnest(queues, wanted) WITH ORDINALITY AS u (queue, key, n), LATERAL (
		SELECT x.id, x.until FROM {schema}.keys x WHERE x.queue = u.queue AND x.key = u.key OFFSET 0
	) k;
END $$;
