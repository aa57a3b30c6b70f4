-- begun moves partitions to their turns, if they have no tasks but the counted tasks, which joined them in this
-- step. A partition no longer rests because of its rate then. A pause, or the rest of a release, still holds.
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
