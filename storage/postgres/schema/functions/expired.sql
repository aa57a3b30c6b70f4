-- expired locks up to most tasks of a queue whose lease ended up to the moment ended, the first to
-- expire first, and up to most declined tasks that waited for the time long while no claim named
-- their kind. It returns them as load does. A task in a line of another queue than its own is returned as
-- damaged.
CREATE FUNCTION {schema}.expired(q int4, now int8, most int4, long int8, ended int8) RETURNS TABLE (
	o_id bytea, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2,
	o_priority int2, o_lease bytea, o_past bytea, o_record bytea, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	s int4;
	k record;
	n int8;
	room int8 := most;
	told int8 := {schema}.told();
BEGIN
	UPDATE {schema}.lines l SET named = told, look = told + long WHERE l.ctid = ANY (ARRAY( -- named ahead of the clock
		SELECT x.ctid FROM {schema}.lines x
		WHERE x.queue = q AND x.state = {state.declined} AND x.named > told FOR NO KEY UPDATE OF x SKIP LOCKED));
	FOREACH s IN ARRAY ARRAY[{states.pending}] LOOP
		RETURN QUERY
		SELECT t.id, t.sort, t.turn, t.version, (CASE WHEN t.queue = q THEN s ELSE {state.damaged} END)::int2,
			t.flags, t.priority, t.lease, t.past, t.record, (CASE WHEN t.flags & 16 > 0 THEN
				(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
		FROM {schema}.tasks t WHERE t.line = {schema}.line(q, s) AND t.sort <= least(now, ended) AND t.flags & {newer} = 0
		ORDER BY t.sort LIMIT most FOR UPDATE SKIP LOCKED;
	END LOOP;
	FOR k IN
		SELECT x.line, x.named FROM {schema}.lines x JOIN {schema}.queues y ON y.queue = x.queue
		WHERE x.queue = q AND x.state = {state.declined} AND x.look <= now
			AND NOT {schema}.paused(y.paused, y.paused_until, now)
		ORDER BY x.sub LIMIT 20 FOR NO KEY UPDATE OF x SKIP LOCKED
	LOOP
		EXIT WHEN room <= 0; -- the next claim reads the other lines
		-- In each priority the tasks that were declined first stand first, except for tasks stamped
		-- by a clock that was ahead. So the first task that has waited for less ends the search along the
		-- line.
		IF k.named <= now - long THEN
			RETURN QUERY
			SELECT t.* FROM generate_series({maxpriority}, -{maxpriority}, -1) AS p (priority), LATERAL (
				SELECT t.id, t.sort, t.turn, t.version,
					(CASE WHEN t.queue = q THEN {state.declined} ELSE {state.damaged} END)::int2, t.flags, t.priority, t.lease, t.past, t.record, (CASE WHEN t.flags & 16 > 0 THEN
						(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
				FROM {schema}.tasks t WHERE t.line = k.line AND t.sort >= {schema}.place(p.priority, -{halfband})
					AND t.sort < {schema}.place(p.priority, {halfband}) AND t.turn <= now - long AND t.flags & {newer} = 0
					AND t.sort < coalesce((
						SELECT u.sort FROM (
							SELECT v.sort, v.turn FROM {schema}.tasks v WHERE v.line = k.line AND v.turn <= now
								AND v.sort >= {schema}.place(p.priority, -{halfband})
								AND v.sort < {schema}.place(p.priority, {halfband})
							ORDER BY v.sort LIMIT room
						) u WHERE u.turn > now - long ORDER BY u.sort LIMIT 1
					), 9223372036854775807)
				ORDER BY t.sort LIMIT room FOR UPDATE OF t SKIP LOCKED
			) t LIMIT room;
			GET DIAGNOSTICS n = ROW_COUNT;
			room := room - n;
		END IF;
		IF room > 0 THEN
			UPDATE {schema}.lines x SET look = greatest(k.named + long, now + long / 24)
			WHERE x.line = k.line AND x.queue = q;
		END IF;
	END LOOP;
END $$;
