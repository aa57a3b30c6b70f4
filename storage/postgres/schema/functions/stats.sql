-- stats returns the sizes and totals of queues, their limits as they are written, the first kinds of
-- their declined tasks with the number of tasks of each, and the age of the oldest waiting task. o_come
-- is 0 during a wait of the clock (come). For that it reads, in each line of waiting tasks whose counter is
-- not 0, the first task behind the middle of each band: its place shows when it came (Band in
-- storage/internal/engine). Of partitions it reads the first (since). The planner takes many queues for so
-- expensive that it would compile the plan: jit is off.
CREATE FUNCTION {schema}.stats(names text[]) RETURNS TABLE (
	o_name text, o_paused bool, o_until int8, o_values int8[], o_kinds text[],
	o_tasks int8[], o_oldest int8, o_now int8, o_come int8, o_operator text, o_declared text, o_starts bytea,
	o_rest int8
) LANGUAGE sql STABLE SET jit = off AS $$
	WITH d AS MATERIALIZED (
		SELECT x.queue, array_agg(x.counter) AS counters, array_agg(x.n) AS changes FROM (
			SELECT y.queue, y.counter, sum(y.n) AS n FROM {schema}.deltas y GROUP BY y.queue, y.counter
		) x GROUP BY x.queue
	)
	SELECT q.name, {schema}.paused(q.paused, q.paused_until, {schema}.told()), q.paused_until,
		v.counters,
		coalesce(k.kinds, '{}'), coalesce(k.tasks, '{}'),
		greatest({schema}.told() - least((SELECT min(t.turn)
			FROM generate_series(-{maxpriority}, {maxpriority}) AS b (priority),
			unnest(ARRAY[{states.waiting}]) AS s (state), LATERAL (
				SELECT x.sort - {schema}.place(b.priority, 0) AS turn FROM {schema}.tasks x
				WHERE x.line = {schema}.line(q.queue, s.state) AND x.sort > {schema}.place(b.priority, 0)
				AND x.sort < {schema}.place(b.priority, {halfband}) ORDER BY x.sort LIMIT 1
			) t WHERE v.counters[s.state] > 0), CASE WHEN v.counters[{state.keyed}] > 0 THEN {schema}.since(q.queue) END), 0),
		{schema}.told(), CASE WHEN {schema}.told() - pg_sequence_last_value('{schema}.jumped'::regclass)
			BETWEEN 0 AND {jumpwait} - 1 THEN 0 ELSE {schema}.told() END, coalesce(l.operator, ''), coalesce(l.declared, ''), coalesce(l.starts, ''),
		coalesce((SELECT y.rest FROM {schema}.lines y WHERE y.queue = q.queue AND y.state = {state.keyed} AND y.sub = ''), 0)
	FROM {schema}.queues q LEFT JOIN d ON d.queue = q.queue CROSS JOIN LATERAL (
		SELECT CASE WHEN d.queue IS NULL THEN q.counters ELSE {schema}.sum(q.counters, d.counters, d.changes) END
			AS counters OFFSET 0
	) v LEFT JOIN LATERAL (
		SELECT array_agg(z.kind ORDER BY z.kind) AS kinds, array_agg(z.tasks ORDER BY z.kind) AS tasks FROM (
			SELECT y.sub AS kind, y.tasks + coalesce((SELECT d.changes[1] FROM d WHERE d.queue = y.line), 0) AS tasks
			FROM {schema}.lines y WHERE y.queue = q.queue AND y.state = {state.declined}
			AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = y.line) ORDER BY y.sub LIMIT {maxstatskinds}
		) z WHERE z.tasks > 0
	) k ON true LEFT JOIN {schema}.limits l ON l.queue = q.queue AND q.limited
	WHERE q.name = ANY (names)
$$;
