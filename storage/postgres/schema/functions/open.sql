-- open makes the lines with a name that tasks are to join (joined), if there are none. turns are the
-- turns of partitions, and look is the next moment to search for declined tasks that waited too long. A
-- partition that waits without tasks, because tasks of it run or its starts count, is put where it
-- belongs with tasks.
CREATE FUNCTION {schema}.open(
	queues int4[], states int2[], subs text[], joined bool[], turns int8[], now int8, look int8
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	lines int8[];
BEGIN
	INSERT INTO {schema}.lines (queue, state, sub, line, named, look, turn)
	SELECT u.queue, u.state, u.sub, {schema}.line(-nextval('{schema}.linenumbers'), u.state), now, look, u.turn
	FROM unnest(queues, states, subs, joined, turns) AS u (queue, state, sub, joined, turn) WHERE u.joined
	ON CONFLICT DO NOTHING;
	lines := ARRAY(SELECT CASE WHEN u.joined THEN u.line END
		FROM unnest({schema}.numbers(queues, states, subs), joined) WITH ORDINALITY AS u (line, joined, nth) ORDER BY u.nth);
	PERFORM FROM {schema}.lines k WHERE k.line = ANY (lines) AND k.sort > greatest(k.paused, k.rest)
		AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
	ORDER BY k.line FOR NO KEY UPDATE OF k;
	IF FOUND THEN
		UPDATE {schema}.lines k SET sort = greatest(k.paused, k.rest), turn = turns[array_position(lines, k.line)],
			turn_left = 0
		WHERE k.line = ANY (lines) AND k.sort > greatest(k.paused, k.rest)
			AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0);
	END IF;
END $$;
