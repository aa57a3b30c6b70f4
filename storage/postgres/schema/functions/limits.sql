-- limits locks the limits of those queues that have one, in the order of their numbers, and returns them as they
-- are written, each with the number of pending tasks of its queue. Each statement of the function sees what was
-- committed before it began, so that the count has the tasks of all who held the lock before. o_wait is true if
-- nothing that depends on the time may happen now (come), o_held if others held the lock for too long:
-- the queue's tasks have to wait then, and those of the other queues have not.
CREATE FUNCTION {schema}.limits(names text[]) RETURNS TABLE (
	o_place int4, o_wait bool, o_held bool, o_operator text, o_declared text, o_starts bytea, o_running int8
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '200ms' AS $$
DECLARE
	q int4;
BEGIN
	o_wait := {schema}.come({schema}.told()) = 0;
	FOR o_place, q IN
		SELECT u.n, q.queue FROM unnest(names) WITH ORDINALITY AS u (name, n)
		JOIN {schema}.queues q ON q.name = u.name WHERE q.limited ORDER BY q.queue
	LOOP
		o_held := false;
		o_operator := '';
		o_declared := '';
		o_starts := '';
		BEGIN
			SELECT l.operator, l.declared, l.starts INTO o_operator, o_declared, o_starts
			FROM {schema}.limits l WHERE l.queue = q FOR UPDATE;
			CONTINUE WHEN NOT FOUND;
		EXCEPTION WHEN lock_not_available THEN
			o_held := true;
			PERFORM set_config('lock_timeout', '1ms', true); -- it has waited enough
		END;
		o_running := (SELECT count(*) FROM (
			SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(q, {state.pending}) LIMIT {maxlimit}
		) x) + (SELECT count(*) FROM (
			SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(q, {state.asked}) LIMIT {maxlimit}
		) x);
		RETURN NEXT;
	END LOOP;
END $$;
