-- dead counts a queue's dead tasks. It is stable, so that it sees the same rows as the statement that calls
-- it.
CREATE FUNCTION {schema}.dead(q int4) RETURNS int8 LANGUAGE sql STABLE AS $$
	SELECT coalesce((SELECT x.counters[{state.dead}] FROM {schema}.queues x WHERE x.queue = q), 0)
		+ coalesce((SELECT sum(d.n) FROM {schema}.deltas d WHERE d.queue = q AND d.counter = {state.dead}), 0)
$$;
