-- side writes the rows of tasks in sides. masks are the columns: 1 attempts, 2 stack, 4 result, 8
-- progress, 16 checkpoint.
CREATE FUNCTION {schema}.side(
	queues int4[], ids bytea[], masks int2[], histories bytea[], stacks bytea[], results bytea[],
	progresses bytea[], checkpoints bytea[]
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	INSERT INTO {schema}.sides AS s (queue, id, attempts, stack, result, progress, checkpoint)
	SELECT u.queue, u.id, u.attempts, u.stack, u.result, u.progress, u.checkpoint
	FROM unnest(queues, ids, histories, stacks, results, progresses, checkpoints)
		AS u (queue, id, attempts, stack, result, progress, checkpoint)
	ON CONFLICT (queue, id) DO NOTHING;
	UPDATE {schema}.sides s SET
		attempts = CASE WHEN u.mask & 1 > 0 THEN u.attempts ELSE s.attempts END,
		stack = CASE WHEN u.mask & 2 > 0 THEN u.stack ELSE s.stack END,
		result = CASE WHEN u.mask & 4 > 0 THEN u.result ELSE s.result END,
		progress = CASE WHEN u.mask & 8 > 0 THEN u.progress ELSE s.progress END,
		checkpoint = CASE WHEN u.mask & 16 > 0 THEN u.checkpoint ELSE s.checkpoint END
	FROM (
		SELECT u.*, (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, masks, histories, stacks, results, progresses, checkpoints)
			AS u (queue, id, mask, attempts, stack, result, progress, checkpoint) OFFSET 0
	) u WHERE s.ctid = u.c;
END $$;
