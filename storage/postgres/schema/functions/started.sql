-- started writes the turns of queues whose rows in limits the step has locked, and the starts that count
-- for their rates; null leaves the starts as they are.
CREATE FUNCTION {schema}.started(queues int4[], p_starts bytea[], turns int8[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.limits l SET starts = coalesce(u.starts, l.starts), turn = u.turn
	FROM unnest(queues, p_starts, turns) AS u (queue, starts, turn) WHERE l.queue = u.queue;
END $$;
