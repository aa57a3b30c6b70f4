-- fold adds up to most deltas to their queues and lines, and gives how many there were. One
-- client folds at a time; for any other fold does nothing and gives 0.
CREATE FUNCTION {schema}.fold(most int4) RETURNS int4 LANGUAGE plpgsql SET jit = off AS $$
DECLARE
	n int4;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtext('{schema}.fold')) THEN
		RETURN 0;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	WITH d AS (
		DELETE FROM {schema}.deltas WHERE ctid = ANY (ARRAY(
			SELECT x.ctid FROM {schema}.deltas x LIMIT most FOR UPDATE SKIP LOCKED))
		RETURNING *
	), s AS MATERIALIZED (
		SELECT x.queue, array_agg(x.counter) AS counters, array_agg(x.n) AS changes, sum(x.rows) AS rows FROM (
			SELECT d.queue, d.counter, sum(d.n) AS n, count(*) AS rows FROM d GROUP BY d.queue, d.counter
		) x GROUP BY x.queue ORDER BY x.queue
	), k AS (
		UPDATE {schema}.lines k SET tasks = k.tasks + s.changes[1] FROM s WHERE k.line = s.queue AND s.queue < 0
	), u AS (
		UPDATE {schema}.queues q SET hidden = false, touched = {schema}.told(),
			counters = {schema}.sum(q.counters, s.counters, s.changes)
		FROM s WHERE q.queue = s.queue
	)
	SELECT coalesce(sum(s.rows), 0) INTO n FROM s;
	RETURN n;
END $$;
