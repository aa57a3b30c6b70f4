-- vacate deletes those of some partitions in whose lines no task waits, unless they are paused. It passes
-- over a line that a task is about to join: whoever joins a line locks it (joining).
CREATE FUNCTION {schema}.vacate(queues int4[], subs text[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '50ms' AS $$
DECLARE
	lines int8[] := {schema}.numbers(queues, array_fill({state.keyed}::int2, ARRAY[cardinality(queues)]), subs);
	empty tid[];
BEGIN
	PERFORM FROM {schema}.lines k -- it waits for fold
	WHERE k.line = ANY (lines) AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
	ORDER BY k.line FOR NO KEY UPDATE OF k;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	empty := ARRAY(
		SELECT k.ctid FROM {schema}.lines k WHERE k.line = ANY (lines) AND k.sort = 0
			AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0) FOR UPDATE OF k SKIP LOCKED);
	-- A statement of its own: a task may have joined a line before the line was locked.
	DELETE FROM {schema}.lines k
	WHERE k.ctid = ANY (empty) AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0);
EXCEPTION WHEN lock_not_available THEN -- the sweep deletes them
END $$;
