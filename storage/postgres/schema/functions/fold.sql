-- fold adds up to most deltas to their queues and lines of kinds. One folds at a time; another does nothing
-- and gives 0, else it gives how many there were.
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
		SELECT queue, count(*) AS n, sum(waiting) AS waiting, sum(pending) AS pending,
			sum(scheduled) AS scheduled, sum(retry) AS retry, sum(completed) AS completed,
			sum(cancelled) AS cancelled, sum(dead) AS dead, sum(cursors) AS cursors, sum(damaged) AS damaged,
			sum(t_enqueued) AS t_enqueued, sum(t_requeued) AS t_requeued, sum(t_completed) AS t_completed,
			sum(t_dead) AS t_dead, sum(t_cancelled) AS t_cancelled, sum(t_deleted) AS t_deleted,
			sum(t_failed) AS t_failed, sum(t_crashed) AS t_crashed
		FROM d GROUP BY queue ORDER BY queue
	), k AS (
		UPDATE {schema}.kinds k SET tasks = k.tasks + s.waiting FROM s WHERE k.line = s.queue AND s.queue < 0
	), u AS (
		UPDATE {schema}.queues q SET
			hidden = false, touched = {schema}.told(),
			waiting = q.waiting + s.waiting, pending = q.pending + s.pending,
			scheduled = q.scheduled + s.scheduled, retry = q.retry + s.retry,
			completed = q.completed + s.completed, cancelled = q.cancelled + s.cancelled,
			dead = q.dead + s.dead, cursors = q.cursors + s.cursors, damaged = q.damaged + s.damaged,
			t_enqueued = q.t_enqueued + s.t_enqueued, t_requeued = q.t_requeued + s.t_requeued,
			t_completed = q.t_completed + s.t_completed, t_dead = q.t_dead + s.t_dead,
			t_cancelled = q.t_cancelled + s.t_cancelled, t_deleted = q.t_deleted + s.t_deleted,
			t_failed = q.t_failed + s.t_failed, t_crashed = q.t_crashed + s.t_crashed
		FROM s WHERE q.queue = s.queue
	)
	SELECT coalesce(sum(s.n), 0) INTO n FROM s;
	RETURN n;
END $$;
