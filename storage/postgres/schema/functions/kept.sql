-- kept reports whether one of these ids belongs to a task that has ended. It is called after the
-- insert, which waited for a settle of the same id under way.
CREATE FUNCTION {schema}.kept(queues int4[], ids bytea[]) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF cardinality(ids) = 1 THEN
		RETURN EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = queues[1] AND e.id = ids[1]);
	END IF;
	PERFORM FROM unnest(queues, ids) AS u (queue, id)
	WHERE (SELECT true FROM {schema}.ended e WHERE e.queue = u.queue AND e.id = u.id) LIMIT 1;
	RETURN FOUND;
END $$;
