-- open makes the lines with a name that tasks are to join (joined), where there are none. turns are the
-- turns of partitions, and look is the next moment to look for declined tasks that waited too long.
CREATE FUNCTION {schema}.open(
	queues int4[], states int2[], subs text[], joined bool[], turns int8[], now int8, look int8
) RETURNS void LANGUAGE sql AS $$
	INSERT INTO {schema}.lines (queue, state, sub, line, named, look, turn)
	SELECT u.queue, u.state, u.sub, {schema}.line(-nextval('{schema}.linenumbers'), u.state), now, look, u.turn
	FROM unnest(queues, states, subs, joined, turns) AS u (queue, state, sub, joined, turn) WHERE u.joined
	ON CONFLICT DO NOTHING
$$;
