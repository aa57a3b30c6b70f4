-- fold adds up to most deltas to their queues and lines, and returns how many there were. One client folds
-- at a time; for any other fold does nothing and returns 0. It waits for no line, so that steps which lock
-- several lines never wait for each other in a circle: the deltas of locked lines are appended again.
CREATE FUNCTION {schema}.fold(most int4) RETURNS int4 LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off AS $$
DECLARE
	n int4;
	numbers int8[];
	changes int8[];
	locked int8[];
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
	), u AS (
		UPDATE {schema}.queues q SET hidden = false, touched = {schema}.told(),
			counters = {schema}.sum(q.counters, s.counters, s.changes)
		FROM s WHERE q.queue = s.queue
	)
	SELECT coalesce(sum(s.rows), 0), array_agg(s.queue) FILTER (WHERE s.queue < 0),
		array_agg(s.changes[1]) FILTER (WHERE s.queue < 0) INTO n, numbers, changes FROM s;
	IF numbers IS NULL THEN
		RETURN n;
	END IF;
	locked := ARRAY(SELECT k.line FROM {schema}.lines k WHERE k.line = ANY (numbers) FOR NO KEY UPDATE SKIP LOCKED);
	UPDATE {schema}.lines k SET tasks = k.tasks + x.n FROM (
		SELECT (SELECT z.ctid FROM {schema}.lines z WHERE z.line = u.line) AS c, u.n
		FROM unnest(numbers, changes) AS u (line, n) WHERE u.line = ANY (locked) AND u.n <> 0 OFFSET 0
	) x WHERE k.ctid = x.c;
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT k.line, k.state, u.n FROM unnest(numbers, changes) AS u (line, n), LATERAL (
		SELECT z.line, z.state FROM {schema}.lines z WHERE z.line = u.line OFFSET 0
	) k WHERE u.line <> ALL (locked) AND u.n <> 0;
	RETURN n;
END $$;
