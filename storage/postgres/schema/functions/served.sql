-- served moves ready partitions to their turns, which a claim has given them.
CREATE FUNCTION {schema}.served(queues int4[], subs text[], turns int8[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	lines int8[] := {schema}.numbers(queues, array_fill({state.keyed}::int2, ARRAY[cardinality(queues)]), subs);
BEGIN
	PERFORM FROM {schema}.lines k WHERE k.line = ANY (lines) ORDER BY k.line FOR NO KEY UPDATE OF k;
	UPDATE {schema}.lines k SET turn = x.turn FROM (
		SELECT (SELECT z.ctid FROM {schema}.lines z WHERE z.line = u.line) AS c, u.turn
		FROM unnest(lines, turns) AS u (line, turn) OFFSET 0
	) x WHERE k.ctid = x.c AND k.sort = 0;
END $$;
