-- started writes the starts that count for the rates of queues, whose limits the step has locked.
CREATE FUNCTION {schema}.started(queues int4[], p_starts bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.limits l SET starts = u.starts
	FROM unnest(queues, p_starts) AS u (queue, starts) WHERE l.queue = u.queue;
END $$;
