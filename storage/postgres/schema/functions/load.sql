-- load reads tasks by their refs and locks the first of them (locks). It waits for locks if wait is true, and
-- fails if one takes too long. If brief is true it waits for a moment for the lock of each live task, and for a
-- shorter one after each that stays locked, for a second or so in all. A task that
-- it does not lock, or that another step has locked, is returned as it was before that step, and o_held is
-- false. If low and high are not empty, the ids of the tasks that it does not lock are between them, of one
-- queue, and so close that few others can be between them.
CREATE FUNCTION {schema}.load(
	queues int4[], ids bytea[], locks int4, wait bool, brief bool, low bytea, high bytea
) RETURNS TABLE (
	o_n int4, o_held bool, o_ended bool, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2,
	o_priority int2, o_lease bytea, o_past bytea, o_record bytea, o_at int8, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '2s' AS $$
DECLARE
	q int4;
	i bytea;
	have bool[] := array_fill(false, ARRAY[locks]);
	patience int4 := 100; -- in milliseconds
	begun timestamptz := clock_timestamp();
BEGIN
	IF wait THEN
		FOR n IN 1..locks LOOP
			PERFORM FROM {schema}.tasks t WHERE t.queue = queues[n] AND t.id = ids[n] FOR UPDATE;
			PERFORM FROM {schema}.ended t WHERE t.queue = queues[n] AND t.id = ids[n] FOR UPDATE;
		END LOOP;
	END IF;
	IF brief THEN -- a step that comes at once behind each end of a lock would never find the task free
		FOR n IN 1..locks LOOP
			PERFORM FROM {schema}.tasks t WHERE t.queue = queues[n] AND t.id = ids[n] FOR UPDATE SKIP LOCKED;
			CONTINUE WHEN FOUND;
			PERFORM set_config('lock_timeout', patience || 'ms', true);
			BEGIN
				PERFORM FROM {schema}.tasks t WHERE t.queue = queues[n] AND t.id = ids[n] FOR UPDATE;
			EXCEPTION WHEN lock_not_available THEN -- another transaction keeps the task locked
				patience := greatest(patience / 2, 10);
			END;
			EXIT WHEN clock_timestamp() > begun + interval '1s';
		END LOOP;
	END IF;
	FOR o_n, o_held, o_ended, o_sort, o_turn, o_version, o_state, o_flags, o_priority, o_lease, o_past, o_record,
			o_at, o_attempts IN
		SELECT u.n, true, false, t.sort, t.turn, t.version, {schema}.state(t.line), t.flags, t.priority, t.lease, t.past,
			t.record, 0, t.attempts
		FROM unnest(queues[:locks], ids[:locks]) WITH ORDINALITY AS u (queue, id, n), LATERAL (
			SELECT t.*, (CASE WHEN t.flags & 16 > 0 THEN
				(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END) AS attempts
			FROM {schema}.tasks t WHERE t.queue = u.queue AND t.id = u.id FOR UPDATE OF t SKIP LOCKED
		) t
	LOOP
		have[o_n] := true;
		RETURN NEXT;
	END LOOP;
	q := queues[locks + 1];
	IF low = '' OR EXISTS ( -- with one snapshot, in which a task is in one of the tables, here and below
		SELECT FROM {schema}.tasks t WHERE t.queue = q AND t.id >= low AND t.id <= high
		UNION ALL
		SELECT FROM {schema}.ended t WHERE t.queue = q AND t.id >= low AND t.id <= high
	) THEN
		RETURN QUERY
		SELECT locks + u.n::int4, false, x.ended, x.sort, x.turn, x.version, x.state, x.flags, x.priority, x.lease,
			x.past, x.record, x.at, NULL::bytea
		FROM unnest(queues[locks + 1:], ids[locks + 1:]) WITH ORDINALITY AS u (queue, id, n), LATERAL (
			SELECT false AS ended, t.sort, t.turn, t.version, {schema}.state(t.line) AS state, t.flags, t.priority,
				t.lease, t.past, t.record, 0::int8 AS at
			FROM {schema}.tasks t WHERE t.queue = u.queue AND t.id = u.id
			UNION ALL
			SELECT true, t.expires, 0::int8, t.version, {schema}.state(t.line), t.flags, t.priority, ''::bytea, t.past,
				t.record, t.at
			FROM {schema}.ended t WHERE t.queue = u.queue AND t.id = u.id
		) x;
	END IF;
	FOR n IN 1..locks LOOP
		CONTINUE WHEN have[n];
		q := queues[n];
		i := ids[n];
		RETURN QUERY
		SELECT n, true, true, t.expires, 0::int8, t.version, {schema}.state(t.line), t.flags, t.priority, ''::bytea,
			t.past, t.record, t.at, (CASE WHEN t.flags & 16 > 0 THEN
				(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
		FROM {schema}.ended t WHERE t.queue = q AND t.id = i FOR UPDATE SKIP LOCKED;
		CONTINUE WHEN FOUND;
		-- Locked by another step, or not there. A task may pass from one table to the other between these
		-- reads: a second read finds a task that was requeued after the first.
		FOR look IN 1..2 LOOP
			RETURN QUERY
			SELECT n, false, false, t.sort, t.turn, t.version, {schema}.state(t.line), t.flags, t.priority, t.lease, t.past,
				t.record, 0::int8, NULL::bytea
			FROM {schema}.tasks t WHERE t.queue = q AND t.id = i;
			EXIT WHEN FOUND;
			RETURN QUERY
			SELECT n, false, true, t.expires, 0::int8, t.version, {schema}.state(t.line), t.flags, t.priority, ''::bytea,
				t.past, t.record, t.at, NULL::bytea
			FROM {schema}.ended t WHERE t.queue = q AND t.id = i;
			EXIT WHEN FOUND;
		END LOOP;
	END LOOP;
END $$;
