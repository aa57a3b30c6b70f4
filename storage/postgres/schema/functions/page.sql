-- page lists tasks of one queue in some states, in order, behind a place. Tasks in lines with a name
-- come behind the others, by state and name; a place among them names both. With p_partition it lists
-- only the line of that partition. A planner that takes a line for short would sort the whole line for
-- each page: with enable_sort = off it sorts only the tasks of one moment. It takes that for so
-- expensive that it would compile the plan: jit is off.
CREATE FUNCTION {schema}.page(
	q int4, states int2[], p_partition text, after_line int2, after_sub text, after_sort int8, after_turn int8,
	after_id bytea, most int4
) RETURNS TABLE (
	o_line int2, o_sub text, o_id bytea, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2,
	o_priority int2, o_lease bytea, o_past bytea, o_record bytea, o_at int8, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
	l record;
	taken int8;
	n int8 := 0;
BEGIN
	IF p_partition <> '' AND (after_line, after_sub) IS DISTINCT FROM ({state.keyed}::int2, p_partition) THEN
		after_line := {state.keyed};
		after_sub := p_partition;
		after_sort := -9223372036854775808;
	END IF;
	FOR l IN
		SELECT * FROM (
			SELECT {schema}.line(q, s.state) AS line, s.state, 0::int2 AS place, '' AS sub FROM unnest(states) AS s (state)
			WHERE after_line = 0
		) ordinary
		UNION ALL
		SELECT * FROM (
			SELECT k.line, k.state, k.state, k.sub FROM {schema}.lines k
			WHERE {state.declined} = ANY (states) AND k.queue = q AND (k.state, k.sub) >= (after_line, after_sub)
			ORDER BY k.state, k.sub
		) named
	LOOP
		EXIT WHEN l.place > 0 AND (n >= most OR p_partition <> '' AND l.sub <> p_partition);
		IF (l.place, l.sub) IS DISTINCT FROM (after_line, after_sub) THEN
			after_sort := -9223372036854775808;
		END IF;
		IF l.state NOT IN ({states.ended}) THEN
			RETURN QUERY
			SELECT l.place, l.sub, t.id, t.sort, t.turn, t.version,
				(CASE WHEN t.queue = q THEN l.state ELSE {state.damaged} END)::int2, t.flags, t.priority, t.lease, t.past, t.record, 0::int8, (CASE WHEN t.flags & 16 > 0 THEN
					(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
			FROM {schema}.tasks t
			WHERE t.line = l.line AND (t.sort, t.turn) >= (after_sort, after_turn)
				AND (t.sort, t.turn, t.id) > (after_sort, after_turn, after_id)
			ORDER BY t.sort, t.turn, t.id LIMIT most;
		ELSE
			RETURN QUERY
			SELECT l.place, l.sub, t.id, t.expires, 0::int8, t.version,
				(CASE WHEN t.queue = q THEN l.state ELSE {state.damaged} END)::int2, t.flags, t.priority, ''::bytea, t.past, t.record, t.at, (CASE WHEN t.flags & 16 > 0 THEN
					(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
			FROM {schema}.ended t
			WHERE t.line = l.line AND t.expires >= after_sort AND (t.expires, t.id) > (after_sort, after_id)
			ORDER BY t.expires, t.id LIMIT most;
		END IF;
		GET DIAGNOSTICS taken = ROW_COUNT;
		n := n + taken;
	END LOOP;
END $$;
