-- partitions lists up to most partitions of a queue behind a key, or the one with the key p_key, unless
-- that is '': those that have tasks or are paused at the moment o_now. o_until is 0 for a partition that
-- is ready, else when its pause ends. The planner takes the scan of all deltas, which have no index, for
-- so expensive that it would compile the plan: jit is off.
CREATE FUNCTION {schema}.partitions(p_name text, p_key text, after text, most int4) RETURNS TABLE (
	o_key text, o_tasks int8, o_until int8, o_now int8
) LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
	WITH page AS MATERIALIZED (
		SELECT k.sub, k.line, k.sort, k.tasks FROM {schema}.lines k
		WHERE k.queue = (SELECT q.queue FROM {schema}.queues q WHERE q.name = p_name) AND k.state = {state.keyed}
			AND k.sub > after AND k.sub >= p_key
			AND (k.sort > {schema}.told() OR EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0))
		ORDER BY k.sub LIMIT CASE WHEN p_key = '' THEN most ELSE 1 END
	)
	SELECT p.sub, p.tasks + coalesce((SELECT d.n FROM (
			SELECT x.queue, sum(x.n)::int8 AS n FROM {schema}.deltas x WHERE x.queue < 0 GROUP BY x.queue OFFSET 0
		) d WHERE d.queue = p.line), 0), p.sort, {schema}.told()
	FROM page p WHERE p_key IN ('', p.sub) ORDER BY p.sub
$$;
