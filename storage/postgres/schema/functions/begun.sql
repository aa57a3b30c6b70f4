-- begun moves ready partitions that have so many tasks, all of which joined them in this step, to their
-- turns.
CREATE FUNCTION {schema}.begun(queues int4[], subs text[], counts int4[], turns int8[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	lines int8[] := {schema}.numbers(queues, array_fill({state.keyed}::int2, ARRAY[cardinality(queues)]), subs);
	fresh bool[] := ARRAY(
		SELECT (SELECT count(*) FROM (SELECT FROM {schema}.tasks t WHERE t.line = u.line LIMIT u.n + 1) x) = u.n
		FROM unnest(lines, counts) WITH ORDINALITY AS u (line, n, nth) ORDER BY u.nth);
BEGIN
	IF true = ANY (fresh) THEN
		PERFORM {schema}.served(array_agg(u.queue), array_agg(u.sub), array_agg(0::int8), array_agg(u.turn),
			array_agg(0), array_agg(NULL::bytea))
		FROM unnest(queues, subs, turns, fresh) AS u (queue, sub, turn, fresh) WHERE u.fresh;
	END IF;
END $$;
