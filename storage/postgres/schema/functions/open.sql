-- open makes the lines with a name that tasks are to join (joined), where there are none. look is the
-- next moment to look for tasks that waited too long.
CREATE FUNCTION {schema}.open(queues int4[], states int2[], subs text[], joined bool[], now int8, look int8)
RETURNS void LANGUAGE sql AS $$
	INSERT INTO {schema}.lines (queue, state, sub, line, named, look)
	SELECT u.queue, u.state, u.sub, {schema}.line(-nextval('{schema}.linenumbers'), u.state), now, look
	FROM unnest(queues, states, subs, joined) AS u (queue, state, sub, joined) WHERE u.joined
	ON CONFLICT DO NOTHING
$$;
