-- limits locks the queues that have a limit or partitions, in the order of their numbers. It returns
-- the limits as they are written, each with the number of pending tasks of its queue, and the turns of
-- the tasks without a partition, -1 for a queue without partitions. Each statement of the function sees the
-- commits before it began, so that the count has the tasks of all steps that held the lock before. o_wait is
-- true if nothing that depends on the time may happen now (come), o_held if others held the lock for too
-- long: the queue's tasks have to wait then, and those of the other queues have not.
CREATE FUNCTION {schema}.limits(names text[]) RETURNS TABLE (
	o_place int4, o_wait bool, o_held bool, o_operator text, o_declared text, o_starts bytea, o_running int8, o_turn int8
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '200ms' AS $$
DECLARE
	q int4;
	keyed bool;
BEGIN
	o_wait := {schema}.come({schema}.told()) = 0;
	FOR o_place, q, keyed IN
		SELECT x.n, x.queue, x.keyed FROM (
			SELECT u.n, q.queue, q.limited, EXISTS (
				SELECT FROM {schema}.lines k WHERE k.queue + 0 = q.queue AND k.state = {state.keyed} AND k.sub > ''
			) AS keyed
			FROM unnest(names) WITH ORDINALITY AS u (name, n) JOIN {schema}.queues q ON q.name = u.name
		) x WHERE x.limited OR x.keyed ORDER BY x.queue
	LOOP
		o_held := false;
		o_operator := '';
		o_declared := '';
		o_starts := '';
		o_turn := -1;
		BEGIN
			IF keyed THEN
				INSERT INTO {schema}.limits (queue, operator, declared, starts) SELECT q, '', '', ''
				WHERE NOT EXISTS (SELECT FROM {schema}.limits l WHERE l.queue = q) ON CONFLICT DO NOTHING;
			END IF;
			SELECT l.operator, l.declared, l.starts, CASE WHEN keyed THEN l.turn ELSE -1 END INTO o_operator, o_declared, o_starts, o_turn
			FROM {schema}.limits l WHERE l.queue = q FOR UPDATE;
			CONTINUE WHEN NOT FOUND;
		EXCEPTION WHEN lock_not_available THEN
			o_held := true;
			PERFORM set_config('lock_timeout', '1ms', true); -- it has waited enough
		END;
		o_running := 0;
		IF o_operator <> '' OR o_declared <> '' THEN
			o_running := (SELECT count(*) FROM (
				SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(q, {state.pending}) LIMIT {maxlimit}
			) x) + (SELECT count(*) FROM (
				SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(q, {state.asked}) LIMIT {maxlimit}
			) x);
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;
