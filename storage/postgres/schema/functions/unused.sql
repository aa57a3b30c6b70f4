-- unused reports whether a queue holds nothing at all.
CREATE FUNCTION {schema}.unused(q int4) RETURNS bool LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = q)
		AND NOT EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = q)
		AND NOT EXISTS (SELECT FROM {schema}.keys k WHERE k.queue = q)
		AND NOT EXISTS (SELECT FROM {schema}.deltas d WHERE d.queue = q);
END $$;
