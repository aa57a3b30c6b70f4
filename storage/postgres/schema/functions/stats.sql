-- stats gives the sizes and totals of queues, the first kinds of their declined tasks with how many
-- there are, and the age of the oldest waiting task: of the first in each band of each line of waiting
-- tasks that stands behind the middle of the band, the place says when it came (Band in
-- storage/internal/engine).
CREATE FUNCTION {schema}.stats(names text[]) RETURNS TABLE (
	o_name text, o_paused bool, o_until int8, o_values int8[], o_kinds text[],
	o_tasks int8[], o_oldest int8
) LANGUAGE sql STABLE AS $$
	WITH d AS MATERIALIZED (
		SELECT x.queue, sum(x.waiting) AS waiting, sum(x.pending) AS pending, sum(x.scheduled) AS scheduled,
			sum(x.retry) AS retry, sum(x.completed) AS completed, sum(x.cancelled) AS cancelled,
			sum(x.dead) AS dead, sum(x.cursors) AS cursors, sum(x.damaged) AS damaged,
			sum(x.t_enqueued) AS t_enqueued, sum(x.t_requeued) AS t_requeued, sum(x.t_completed) AS t_completed,
			sum(x.t_dead) AS t_dead, sum(x.t_cancelled) AS t_cancelled, sum(x.t_deleted) AS t_deleted,
			sum(x.t_failed) AS t_failed, sum(x.t_crashed) AS t_crashed
		FROM {schema}.deltas x GROUP BY x.queue
	)
	SELECT q.name, q.paused AND (q.paused_until = 0 OR q.paused_until > {schema}.told()), q.paused_until, ARRAY[
		q.waiting + coalesce(d.waiting, 0), q.pending + coalesce(d.pending, 0),
		q.scheduled + coalesce(d.scheduled, 0), q.retry + coalesce(d.retry, 0),
		q.completed + coalesce(d.completed, 0), q.cancelled + coalesce(d.cancelled, 0),
		q.dead + coalesce(d.dead, 0), q.cursors + coalesce(d.cursors, 0), q.damaged + coalesce(d.damaged, 0),
		q.t_enqueued + coalesce(d.t_enqueued, 0), q.t_requeued + coalesce(d.t_requeued, 0),
		q.t_completed + coalesce(d.t_completed, 0), q.t_dead + coalesce(d.t_dead, 0),
		q.t_cancelled + coalesce(d.t_cancelled, 0), q.t_deleted + coalesce(d.t_deleted, 0),
		q.t_failed + coalesce(d.t_failed, 0), q.t_crashed + coalesce(d.t_crashed, 0)],
		coalesce(k.kinds, '{}'), coalesce(k.tasks, '{}'),
		coalesce((SELECT greatest({schema}.told() - min(t.turn), 0) FROM generate_series(0, 18) AS b (band),
			unnest(ARRAY[1, 2, 3]) AS s (state), LATERAL (
				SELECT x.sort - b.band * 72057594037927936 AS turn FROM {schema}.tasks x
				WHERE x.line = (q.queue * 16 + s.state)::int4 AND x.sort > b.band * 72057594037927936
				AND x.sort < b.band * 72057594037927936 + 36028797018963968 ORDER BY x.sort LIMIT 1
			) t), 0)
	FROM {schema}.queues q LEFT JOIN d ON d.queue = q.queue LEFT JOIN LATERAL (
		SELECT array_agg(z.kind ORDER BY z.kind) AS kinds, array_agg(z.tasks ORDER BY z.kind) AS tasks FROM (
			SELECT y.kind, y.tasks + coalesce((SELECT d.waiting FROM d WHERE d.queue = y.line), 0)::int8 AS tasks
			FROM {schema}.kinds y WHERE y.queue = q.queue
			AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = y.line) ORDER BY y.kind LIMIT {maxstatskinds}
		) z WHERE z.tasks > 0
	) k ON true
	WHERE q.name = ANY (names)
$$;
