-- keep adds tasks that have ended.
CREATE FUNCTION {schema}.keep(
	queues int4[], ids bytea[], sorts int8[], versions int8[], states int2[], marks int2[],
	priorities int2[], pasts bytea[], records bytea[], ats int8[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.ended (expires, version, at, queue, line, flags, priority, id, past, record)
	SELECT u.sort, u.version, u.at, u.queue, {schema}.line(u.queue, u.state), u.mark, u.priority, u.id, u.past, u.record
	FROM unnest(queues, ids, sorts, versions, states, marks, priorities, pasts, records, ats)
		AS u (queue, id, sort, version, state, mark, priority, past, record, at);
END $$;
