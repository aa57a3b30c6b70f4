-- found gives the holders of unique keys.
CREATE FUNCTION {schema}.found(queues int4[], wanted text[]) RETURNS TABLE (
	o_n int4, o_id bytea, o_until int8
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	RETURN QUERY
	SELECT u.n::int4, k.id, k.until
	FROM unnest(queues, wanted) WITH ORDINALITY AS u (queue, key, n), LATERAL (
		SELECT x.id, x.until FROM {schema}.keys x WHERE x.queue = u.queue AND x.key = u.key OFFSET 0
	) k;
END $$;
