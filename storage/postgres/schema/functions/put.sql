-- put rewrites tasks that load has locked; an empty record leaves the record as it is. subs are the
-- names of their lines, which exist (joining), and '' for tasks in a line without a name; partitions are
-- the keys of their partitions.
CREATE FUNCTION {schema}.put(
	queues int4[], ids bytea[], sorts int8[], turns int8[], versions int8[], states int2[], marks int2[],
	priorities int2[], leases bytea[], pasts bytea[], records bytea[], subs text[], partitions text[]
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.tasks t
	SET sort = u.sort, turn = u.turn, version = u.version, flags = u.mark, priority = u.priority,
		line = CASE WHEN u.sub = '' THEN {schema}.line(u.queue, u.state) ELSE (
			SELECT k.line FROM {schema}.lines k WHERE k.queue = u.queue AND k.state = u.state AND k.sub = u.sub) END,
		lease = u.lease, past = u.past, record = CASE WHEN u.record = '' THEN t.record ELSE u.record END,
		partition = u.partition
	FROM (
		SELECT u.*, (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, sorts, turns, versions, states, marks, priorities, leases, pasts, records, subs,
			partitions)
			AS u (queue, id, sort, turn, version, state, mark, priority, lease, past, record, sub, partition) OFFSET 0
	) u WHERE t.ctid = u.c;
END $$;
