-- concerned returns the queues of an enqueue for which a process may wait: the queues with new work, and the
-- queues in which a new task is now due before all others.
CREATE FUNCTION {schema}.concerned(
	queues int4[], ats int8[], dues int8[], dqueues int4[], dwaiting int4[], now int8
) RETURNS int4[] LANGUAGE plpgsql AS $$
BEGIN
	RETURN ARRAY(
		SELECT d.queue FROM unnest(dqueues, dwaiting) AS d (queue, w)
		WHERE d.w > 0 OR {schema}.soonest(d.queue, now) >= (
			SELECT min(CASE WHEN u.due < 0 THEN now + u.at - u.due ELSE u.due END)
			FROM unnest(queues, ats, dues) AS u (queue, at, due) WHERE u.queue = d.queue));
END $$;
