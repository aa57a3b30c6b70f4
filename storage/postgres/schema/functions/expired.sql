-- expired locks up to most tasks of a queue whose lease has expired, the first claimed
-- first, and gives them as load does; one in a line of another queue than its own is damaged.
CREATE FUNCTION {schema}.expired(q int4, now int8, most int4) RETURNS TABLE (
	o_id bytea, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2,
	o_priority int2, o_lease bytea, o_past bytea, o_record bytea, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	FOR s IN 4..5 LOOP
		RETURN QUERY
		SELECT t.id, t.sort, t.turn, t.version, (CASE WHEN t.queue = q THEN s ELSE 9 END)::int2, t.flags, t.priority,
			t.lease, t.past, t.record, (CASE WHEN t.flags & 16 > 0 THEN
				(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
		FROM {schema}.tasks t WHERE t.line = q * 16 + s AND t.sort <= now AND t.flags & {newer} = 0
		ORDER BY t.sort LIMIT most FOR UPDATE SKIP LOCKED;
	END LOOP;
END $$;
