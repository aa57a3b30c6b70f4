-- open makes the lines of kinds that tasks are to join (joined), where there are none. look is the
-- next moment to look for tasks that waited too long.
CREATE FUNCTION {schema}.open(queues int4[], names text[], joined bool[], now int8, look int8) RETURNS void
LANGUAGE sql AS $$
	INSERT INTO {schema}.kinds (queue, kind, named, look)
	SELECT u.queue, u.kind, now, look FROM unnest(queues, names, joined) AS u (queue, kind, joined) WHERE u.joined
	ON CONFLICT DO NOTHING
$$;
