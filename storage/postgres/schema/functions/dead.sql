-- dead counts a queue's dead tasks.
CREATE FUNCTION {schema}.dead(q int4) RETURNS int8 LANGUAGE sql AS $$
	SELECT coalesce((SELECT x.dead FROM {schema}.queues x WHERE x.queue = q), 0)
		+ coalesce((SELECT sum(d.dead) FROM {schema}.deltas d WHERE d.queue = q), 0)
$$;
