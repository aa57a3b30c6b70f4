-- served writes what a claim has done with partitions: it moves ready ones to their new places, if sorts has
-- a sort, with the rests of their turns (lefts), and replaces the starts that count, if starts has any. It
-- makes the row of a partition whose declined tasks alone were taken.
CREATE FUNCTION {schema}.served(
	queues int4[], subs text[], sorts int8[], turns int8[], lefts int4[], p_starts bytea[]
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	states int2[] := array_fill({state.keyed}::int2, ARRAY[cardinality(queues)]);
	lines int8[] := {schema}.numbers(queues, states, subs);
BEGIN
	IF array_position(lines, NULL) > 0 THEN
		PERFORM {schema}.open(queues, states, subs, ARRAY(SELECT u.line IS NULL FROM unnest(lines) AS u (line)), turns,
			{schema}.told(), 0);
		lines := {schema}.numbers(queues, states, subs);
	END IF;
	PERFORM FROM {schema}.lines k WHERE k.line = ANY (lines) ORDER BY k.line FOR NO KEY UPDATE OF k;
	UPDATE {schema}.lines k SET starts = coalesce(x.starts, k.starts),
		sort = CASE WHEN k.sort = 0 THEN coalesce(x.sort, 0) ELSE k.sort END,
		turn = CASE WHEN k.sort = 0 AND x.sort IS NOT NULL THEN x.turn ELSE k.turn END,
		turn_left = CASE WHEN k.sort = 0 AND x.sort IS NOT NULL THEN x.left_over ELSE k.turn_left END
	FROM (
		SELECT (SELECT z.ctid FROM {schema}.lines z WHERE z.line = u.line) AS c, u.sort, u.turn, u.left_over, u.starts
		FROM unnest(lines, sorts, turns, lefts, p_starts) AS u (line, sort, turn, left_over, starts) OFFSET 0
	) x WHERE k.ctid = x.c AND (k.sort = 0 OR x.starts IS NOT NULL);
END $$;
