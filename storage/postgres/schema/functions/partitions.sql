-- partitions lists up to most partitions of a queue behind a key, or the one with the key p_key, unless
-- that is '': the partitions that have tasks, waiting or running, that are paused or rest at the moment o_now, that
-- have a limit of their own (o_own), or whose starts count. The limit of the queue is returned too. o_come is 0 during a wait of the
-- clock (come). The planner takes the scan of all deltas, which have no index, for so expensive that it
-- would compile the plan: jit is off.
CREATE FUNCTION {schema}.partitions(p_name text, p_key text, after text, most int4) RETURNS TABLE (
	o_key text, o_tasks int8, o_paused int8, o_rest int8, o_running int8, o_starts bytea, o_now int8, o_come int8,
	o_operator text, o_declared text, o_own text
) LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
	WITH n AS MATERIALIZED (
		SELECT {schema}.told() AS now, CASE WHEN {schema}.told() - pg_sequence_last_value('{schema}.jumped'::regclass)
			BETWEEN 0 AND {jumpwait} - 1 THEN 0 ELSE {schema}.told() END AS come
	), page AS MATERIALIZED (
		SELECT k.*, n.now, n.come, (SELECT count(*) FROM (
			SELECT FROM {schema}.tasks t WHERE t.queue + 0 = k.queue AND t.partition = k.sub AND t.flags & 32 > 0
			LIMIT {maxlimit}) x) AS running
		FROM {schema}.lines k, n
		WHERE k.queue = (SELECT q.queue FROM {schema}.queues q WHERE q.name = p_name) AND k.state = {state.keyed}
			AND k.sub > after AND k.sub >= p_key
			AND (k.paused > n.now OR k.rest > n.now OR k.own <> '' OR {schema}.over(k.queue, k.own, k.starts) > n.come
				OR EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
				OR EXISTS (SELECT FROM {schema}.tasks t
					WHERE t.queue + 0 = k.queue AND t.partition = k.sub AND t.flags & 32 > 0 OFFSET 0))
		ORDER BY k.sub LIMIT CASE WHEN p_key = '' THEN most ELSE 1 END
	)
	SELECT p.sub, p.tasks + coalesce((SELECT d.n FROM (
			SELECT x.queue, sum(x.n)::int8 AS n FROM {schema}.deltas x WHERE x.queue < 0 GROUP BY x.queue OFFSET 0
		) d WHERE d.queue = p.line), 0), p.paused, p.rest, p.running, p.starts, p.now, p.come,
		coalesce(l.operator, ''), coalesce(l.declared, ''), p.own
	FROM page p LEFT JOIN {schema}.limits l ON l.queue = p.queue
	WHERE p_key IN ('', p.sub) ORDER BY p.sub
$$;
