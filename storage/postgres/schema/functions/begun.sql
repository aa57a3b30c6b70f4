-- begun moves partitions that have so many tasks, all of which joined them in this step, to their turns. They
-- no longer rest because of their rate, but they stay where a pause or a rest keeps them.
CREATE FUNCTION {schema}.begun(queues int4[], subs text[], counts int4[], turns int8[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	lines int8[] := {schema}.numbers(queues, array_fill({state.keyed}::int2, ARRAY[cardinality(queues)]), subs);
	fresh bool[] := ARRAY(
		SELECT (SELECT count(*) FROM (SELECT FROM {schema}.tasks t WHERE t.line = u.line LIMIT u.n + 1) x) = u.n
		FROM unnest(lines, counts) WITH ORDINALITY AS u (line, n, nth) ORDER BY u.nth);
BEGIN
	IF true = ANY (fresh) THEN
		lines := ARRAY(SELECT CASE WHEN u.fresh THEN u.line END
			FROM unnest(lines, fresh) WITH ORDINALITY AS u (line, fresh, nth) ORDER BY u.nth);
		PERFORM FROM {schema}.lines k WHERE k.line = ANY (lines) ORDER BY k.line FOR NO KEY UPDATE OF k;
		UPDATE {schema}.lines k SET sort = 0, turn = turns[array_position(lines, k.line)], turn_left = 0
		WHERE k.line = ANY (lines) AND k.paused = 0 AND k.rest = 0;
	END IF;
END $$;
