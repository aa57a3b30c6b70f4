-- served moves ready partitions to their turns, which a claim has given them. The expression keeps the
-- planner from reading the whole ring.
CREATE FUNCTION {schema}.served(queues int4[], subs text[], turns int8[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	PERFORM FROM unnest(queues, subs) AS u (queue, sub)
	JOIN {schema}.lines k ON k.queue = u.queue AND k.state = {state.keyed} AND k.sub = u.sub
	ORDER BY k.line FOR NO KEY UPDATE OF k;
	UPDATE {schema}.lines k SET turn = u.turn FROM unnest(queues, subs, turns) AS u (queue, sub, turn)
	WHERE k.queue = u.queue AND k.state = {state.keyed} AND k.sub = u.sub AND k.sort + 0 = 0;
END $$;
