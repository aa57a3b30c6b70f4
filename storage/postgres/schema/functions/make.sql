-- make adds tasks. subs are the names of their lines, which exist (joining), and '' for tasks in a line
-- without a name; partitions are the keys of their partitions. An id that is taken, also by a task that
-- has ended, is a unique_violation. In a transaction of the application's that keeps its first snapshot,
-- an id that was taken since is a serialization_failure.
CREATE FUNCTION {schema}.make(
	queues int4[], ids bytea[], sorts int8[], turns int8[], versions int8[], states int2[], marks int2[],
	priorities int2[], pasts bytea[], records bytea[], subs text[], partitions text[], patient bool
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		PERFORM {schema}.unseen(queues, ids);
	END IF;
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record,
		partition)
	SELECT u.sort, u.turn, u.version, u.queue, CASE WHEN u.sub = '' THEN {schema}.line(u.queue, u.state) ELSE (
			SELECT k.line FROM {schema}.lines k WHERE k.queue = u.queue AND k.state = u.state AND k.sub = u.sub) END,
		u.mark, u.priority, u.id, '', u.past, u.record, u.partition
	FROM unnest(queues, ids, sorts, turns, versions, states, marks, priorities, pasts, records, subs, partitions)
		AS u (queue, id, sort, turn, version, state, mark, priority, past, record, sub, partition);
	PERFORM {schema}.made(queues, ids, '', '');
END $$;
