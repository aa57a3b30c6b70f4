-- page lists tasks of some states of one queue, in order, behind a place.
CREATE FUNCTION {schema}.page(q int4, states int2[], after_sort int8, after_turn int8, after_id bytea, most int4)
RETURNS TABLE (
	o_id bytea, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2, o_priority int2, o_lease bytea,
	o_past bytea, o_record bytea, o_at int8, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	FOR i IN 1..cardinality(states) LOOP
		IF states[i] < 10 THEN
			RETURN QUERY
			SELECT t.id, t.sort, t.turn, t.version, (CASE WHEN t.queue = q THEN states[i] ELSE 9 END)::int2, t.flags, t.priority,
				t.lease, t.past, t.record, 0::int8, (CASE WHEN t.flags & 16 > 0 THEN
					(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
			FROM {schema}.tasks t
			WHERE t.line = q * 16 + states[i] AND (t.sort, t.turn) >= (after_sort, after_turn)
				AND (t.sort, t.turn, t.id) > (after_sort, after_turn, after_id)
			ORDER BY t.sort, t.turn, t.id LIMIT most;
		ELSE
			RETURN QUERY
			SELECT t.id, t.expires, 0::int8, t.version, (CASE WHEN t.queue = q THEN states[i] ELSE 9 END)::int2, t.flags, t.priority,
				''::bytea, t.past, t.record, t.at, (CASE WHEN t.flags & 16 > 0 THEN
					(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
			FROM {schema}.ended t
			WHERE t.line = q * 16 + states[i] AND t.expires >= after_sort
				AND (t.expires, t.id) > (after_sort, after_id)
			ORDER BY t.expires, t.id LIMIT most;
		END IF;
	END LOOP;
END $$;
