-- claim promotes due tasks of queues, hands out their due cursors, and takes waiting tasks in the order of
-- the queues named: the tasks that every claim may take. If a queue has other tasks for this claim, such
-- as declined tasks of the kinds that it names, or ready partitions, or a limit, claim leaves the choice to
-- the client. The client calls it again as a part of its choice, with general: then it takes nothing
-- (choose.go). A call first reports whether one of the queues needs maintenance by the client ('m' rows, and
-- nothing else happens). The client does the maintenance, and calls again with maintained. holder is the
-- token and the runner.
--
-- Rows by o_kind:
-- 'm' maintenance: o_at is the queue's number.
-- 'v', 'x' the call is refused (admit).
-- 'g' the choice is the client's; the lane was not asked for the call.
-- 't' a task, 'k' a tick, 'd' one of these in a line of another queue than its own: o_place is the place
-- of the queue among the names, o_at the sort of the lease or cursor.
-- 'a' a task of a call that is repeated: its o_past stands behind when it was claimed, in eight bytes.
-- 'h' the last row: o_version is the time, o_id the first version of the step in eight bytes, o_at the
-- next due moment or null. o_flags has 1 for more, 2 for cancels, 4 if nothing is left to maintain,
-- 8 if the call is a repeat, 16 if the process was marked. o_past has the number of each queue in four bytes, 0 if there is none.
-- o_record has for each queue, in eight bytes, the last place behind froms that was taken; with general, the turn
-- of its first ready partition, 0 for none.
--
-- Claimed tasks leave their entries in the index until a vacuum. So that a claim does not pass over all of
-- them, the client names the ranges that it need not read: from lows to froms in the order of the waiting tasks,
-- and up to sinces among tasks that wait for a moment, up to recovered among leases, and before rings in the rings
-- of partitions (hint.go). p_ended is the moment up to which leases that ended are recovered. p_room is how many
-- bytes the records of the tasks may have, and likewise the records of the cursors (hide).
--
-- If tasks are left, claim wakes two processes that wait for them. If none are left and it could have taken
-- more, it marks the process sender as idle if p_mark is set.
CREATE FUNCTION {schema}.claim(
	p_lane bytea, p_opened int8, p_seq int8, p_names text[], p_maxes int4[], p_max int4, p_start int4,
	p_suspect bool, p_general bool, p_lease int8, p_holder bytea, p_maintained bool, p_batch int4, p_room int8,
	p_lows int8[], p_froms int8[], p_sinces int8[], p_kinds text[], p_recovered int8[], p_ended int8,
	sender text, p_mark bool, p_rings int8[]
) RETURNS TABLE (
	o_kind "char", o_place int4, o_id bytea, o_version int8, o_at int8, o_flags int2, o_priority int2,
	o_past bytea, o_record bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	now int8 := {schema}.told();
	come int8 := {schema}.come(now);
	base int8;
	lane "char" := 'n';
	s record; -- the row that ready returns of a queue
	p record; -- the row that plain returns of a queue; an assignment costs a third of a query from the function
	numbers int4[] := '{}';
	takes int4[] := '{}'; -- how many to take of each queue, -1 if it takes none
	lows int8[] := '{}'; -- the places before which to search in each queue, null for no search there
	take int4;
	cs tid[];
	used int8;
	seen int4;
	last int8;
	got int4;
	done int4 := 0;
	room int8 := p_room;
	ticked int8 := 0; -- the bytes of the due cursors that were seen
	more bool := false;
	cancels bool := false;
	clean bool := NOT p_maintained;
	next int8;
	turns int4 := 0;
	firsts int8[] := '{}'; -- the turns of the first ready partitions
	named bytea := '';
	places bytea := '';
BEGIN
	IF NOT p_maintained THEN
		RETURN QUERY
		SELECT 'm'::"char", u.n::int4, NULL::bytea, 0::int8, q.queue::int8, 0::int2, 0::int2, NULL::bytea, NULL::bytea
		FROM unnest(p_names) WITH ORDINALITY AS u (name, n) JOIN {schema}.queues q ON q.name = u.name
		WHERE {schema}.behind(q.queue, p_sinces[u.n], come, p_recovered[u.n], p_ended);
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	FOR i IN 1..cardinality(p_names) LOOP
		s := {schema}.ready(p_names[i], CASE WHEN p_maxes[i] <> {maxnone} THEN p_kinds END, now, come,
			p_lows[i], p_sinces[i], p_rings[i], p_batch, p_room - ticked);
		numbers := numbers || s.number;
		takes := takes || CASE WHEN p_general OR s.held IS NOT FALSE OR s.resting OR p_max = 0 THEN -1
			ELSE coalesce(nullif(greatest(p_maxes[i], -1), 0), p_max) END;
		lows := lows || CASE WHEN s.early THEN p_lows[i] END;
		named := named || int4send(coalesce(s.number, 0));
		CONTINUE WHEN s.number IS NULL;
		ticked := ticked + s.ticked;
		more := more OR s.more;
		cancels := cancels OR s.asked;
		clean := clean AND s.clean;
		next := least(next, s.next);
		turns := greatest(turns, s.turns);
		firsts[i] := s.first;
		IF s.ticks <> '{}' THEN
			RETURN QUERY
			SELECT (CASE WHEN t.queue = s.number THEN 'k' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags,
				t.priority, t.past, t.record
			FROM {schema}.tasks t WHERE t.ctid = ANY (s.ticks);
		END IF;
		IF NOT p_general AND (s.declined OR (s.limited OR s.keyed) AND p_maxes[i] >= 0
			OR takes[i] > 0 AND p_start > 0 AND (s.prompts OR s.suspects AND p_suspect)) THEN
			lane := 'g';
			EXIT;
		END IF;
	END LOOP;
	base := {schema}.stamp(now, turns + 2 * p_max + 1) + turns; -- behind the turns that ready has assigned
	IF p_seq > 0 AND lane <> 'g' THEN
		lane := {schema}.admit(p_lane, p_opened, p_seq, base, 'c', now);
	END IF;
	IF lane IN ('v', 'x', 'g') THEN
		RETURN QUERY SELECT lane, 0, NULL::bytea, now, NULL::int8, 0::int2, 0::int2, NULL::bytea, NULL::bytea;
		RETURN;
	END IF;
	FOR i IN 1..cardinality(p_names) LOOP
		take := CASE WHEN lane = 'r' OR room <= 0 THEN 0 ELSE greatest(least(takes[i], p_max - done), 0) END;
		got := 0;
		seen := 0;
		last := 0;
		IF lane = 'r' THEN
			RETURN QUERY
			SELECT (CASE WHEN t.queue = numbers[i] THEN 'a' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags,
				t.priority, int8send(t.turn) || t.past, t.record
			FROM {schema}.again(numbers[i], p_holder) t;
		ELSIF take > 0 THEN
			p := {schema}.plain(numbers[i], lows[i], p_froms[i], take, room, done = 0);
			cs := p.cs;
			used := p.used;
			seen := p.seen;
			last := p.last;
		END IF;
		IF take > 0 AND cs <> '{}' THEN
			RETURN QUERY -- in the order of cs, in which the join finds the tasks
			UPDATE {schema}.tasks t
			SET line = {schema}.line(numbers[i], {state.pending}), sort = now + p_lease, turn = now + done + k.n - 1,
				lease = p_holder, version = greatest(least(t.version, 4000000000000000000) + 1, base + done + k.n - 1),
				flags = (t.flags & ~2::int2) | CASE WHEN done + k.n <= p_start THEN 2::int2 ELSE 0::int2 END,
				past = CASE WHEN t.past = '' THEN int8send(t.version) ELSE t.past END
			FROM unnest(cs) WITH ORDINALITY AS k (c, n) WHERE t.ctid = k.c
			RETURNING (CASE WHEN t.queue = numbers[i] THEN 't' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags,
				t.priority, t.past, t.record;
			GET DIAGNOSTICS got = ROW_COUNT;
			PERFORM {schema}.passed(numbers[i], got, {state.waiting}, {state.pending}, 0);
			done := done + got;
			room := room - used;
		END IF;
		IF takes[i] >= 0 AND (seen > got OR (lane = 'r' OR got >= take) AND {schema}.remains(
			numbers[i], greatest(p_froms[i], nullif(last, 0)), CASE WHEN p_lows[i] < p_froms[i] THEN p_lows[i] END)) THEN
			more := true;
			PERFORM {schema}.rouse(numbers[i], 2, now, sender);
		END IF;
		places := places || int8send(CASE WHEN p_general THEN coalesce(firsts[i], 0) ELSE last END);
	END LOOP;
	IF come = 0 THEN -- nothing that depends on the time happens before the end of the wait
		next := pg_sequence_last_value('{schema}.jumped'::regclass) + {jumpwait};
	END IF;
	p_mark := p_mark AND NOT more AND done < p_max;
	IF p_mark THEN
		INSERT INTO {schema}.idle (queue, process, at)
		SELECT u.q, sender, now FROM unnest(numbers, takes) AS u (q, most) WHERE u.most > 0;
	END IF;
	IF done = 0 THEN
		-- No need to wait for the disk. If a crash of the server undoes a promotion or a hidden cursor, the task
		-- or cursor is due as before, and a step that relies on either flushes it first.
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	RETURN QUERY SELECT 'h'::"char", 0, int8send(base), now, next,
		(more::int4 + 2 * cancels::int4 + 4 * clean::int4 + 8 * (lane = 'r')::int4 + 16 * p_mark::int4)::int2, 0::int2,
		named, places;
END $$;
