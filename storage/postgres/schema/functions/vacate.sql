-- vacate deletes the partitions of which nothing is left, and puts partitions without waiting tasks out of
-- the way of claims (arrange).
CREATE FUNCTION {schema}.vacate(queues int4[], subs text[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '50ms' AS $$
DECLARE
	lines int8[] := {schema}.numbers(queues, array_fill({state.keyed}::int2, ARRAY[cardinality(queues)]), subs);
BEGIN
	PERFORM FROM {schema}.lines k -- it waits for fold
	WHERE k.line = ANY (lines) AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
	ORDER BY k.line FOR NO KEY UPDATE OF k;
	IF FOUND THEN
		PERFORM {schema}.arrange(ARRAY(
			SELECT k.line FROM {schema}.lines k WHERE k.line = ANY (lines)
				AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)), {schema}.told(), 0);
	END IF;
EXCEPTION WHEN lock_not_available THEN -- the sweep deletes them
END $$;
