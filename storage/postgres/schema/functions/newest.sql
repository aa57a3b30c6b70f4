-- newest lists the tasks of one queue in an ended state that are before a place, the last first.
CREATE FUNCTION {schema}.newest(
	q int4, state int2, before_sort int8, before_id bytea, most int4
) RETURNS TABLE (
	o_line int2, o_sub text, o_id bytea, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2, o_priority int2,
	o_lease bytea, o_past bytea, o_record bytea, o_at int8, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
	RETURN QUERY
	SELECT 0::int2, '', t.id, t.expires, 0::int8, t.version, (CASE WHEN t.queue = q THEN state ELSE {state.damaged} END)::int2,
		t.flags, t.priority, ''::bytea, t.past, t.record, t.at, (CASE WHEN t.flags & 16 > 0 THEN
			(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
	FROM {schema}.ended t
	WHERE t.line = {schema}.line(q, state) AND t.expires <= before_sort AND (t.expires, t.id) < (before_sort, before_id)
	ORDER BY t.expires DESC, t.id DESC LIMIT most;
END $$;
