-- claim promotes what is due, hands out due cursors and takes tasks, in the order of the
-- queues named. A call says first whether one of the queues needs maintenance that is
-- not its own ('m' rows, and nothing else happens); the client sees to it and calls
-- again with maintained. holder is the token and the runner.
--
-- Rows by o_kind: 'm' maintenance (o_at the queue's number), 'v' the call is older than
-- the lane's last, 'x' its lane expired, 't' a task, 'k' a tick, 'd' one of these in a line
-- of another queue than its own, 'h' last of all:
-- o_version is the time, o_id the first version of the step in eight bytes, o_at the next due
-- moment or null, o_flags 1 more, 2 cancels,
-- o_past the number of each queue in four bytes, 0 where there is none.
-- o_record the last place of what was taken behind froms, in eight bytes for each queue;
-- 4 in o_flags says that nothing is left to maintain.
-- o_place is the place of the queue among the names, o_at a lease's or cursor's sort.
--
-- What was claimed leaves its entries in the index until a vacuum. So that a claim does
-- not pass over all of them, the client says where it need not look: from lows to froms
-- in the order of what waits, and up to sinces where tasks wait for a moment (hint.go).
CREATE FUNCTION {schema}.claim(
	p_lane bytea, p_opened int8, p_seq int8, p_names text[], p_maxes int4[], p_max int4, p_start int4,
	p_suspect bool, p_lease int8, p_holder bytea, p_maintained bool, p_batch int4, p_room int8,
	p_lows int8[], p_froms int8[], p_sinces int8[]
) RETURNS TABLE (
	o_kind "char", o_place int4, o_id bytea, o_version int8, o_at int8, o_flags int2, o_priority int2,
	o_past bytea, o_record bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
<<step>>
DECLARE
	now int8 := {schema}.told();
	come int8 := {schema}.come(now);
	base int8;
	lane "char" := 'n';
	s record; -- of the queue that is looked at, and what is picked there
	done int4 := 0;
	room int8 := p_room;
	suspect bool := false;
	changed bool := false;
	more bool := false;
	cancels bool := false;
	clean bool := NOT p_maintained;
	next int8;
	numbers bytea := '';
	places bytea := '';
BEGIN
	IF NOT p_maintained THEN
		RETURN QUERY
		SELECT 'm'::"char", u.n::int4, NULL::bytea, 0::int8, q.queue::int8, 0::int2, 0::int2, NULL::bytea, NULL::bytea
		FROM unnest(p_names) WITH ORDINALITY AS u (name, n) JOIN {schema}.queues q ON q.name = u.name
		WHERE {schema}.behind(q.queue, p_sinces[u.n], come);
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	base := {schema}.stamp(now, p_max + 1);
	IF p_seq > 0 THEN
		lane := {schema}.recall(p_lane, p_opened, p_seq, base, now);
		IF lane IN ('v', 'x') THEN
			RETURN QUERY SELECT lane, 0, NULL::bytea, now, NULL::int8, 0::int2, 0::int2, NULL::bytea, NULL::bytea;
			RETURN;
		END IF;
	END IF;
	FOR i IN 1..cardinality(p_names) LOOP
		SELECT x.*, false AS direct, 0 AS promoted, 0 AS take, '{}'::tid[] AS cs, '{}'::int4[] AS was, 0::int8 AS used,
			0 AS seen, 0::int8 AS last, 0 AS got
		INTO s FROM {schema}.survey(p_names[i], come, p_lows[i], p_sinces[i]) x;
		numbers := numbers || int4send(coalesce(s.number, 0));
		IF s.number IS NULL THEN
			places := places || int8send(0);
			CONTINUE;
		END IF;
		cancels := cancels OR s.asked;
		IF lane = 'r' THEN
			RETURN QUERY
			SELECT (CASE WHEN t.queue = s.number THEN 't' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags,
				t.priority, t.past, t.record
			FROM {schema}.again(s.number, p_holder) t;
		ELSE
			s.take := CASE WHEN s.held OR p_maxes[i] < 0 OR room <= 0 THEN 0
				ELSE least(p_max - done, CASE WHEN p_maxes[i] = 0 THEN p_max ELSE p_maxes[i] END) END;
			IF s.first <= come THEN
				s.direct := s.take > 0 AND NOT s.prompts AND NOT s.suspects AND NOT s.early
					AND NOT {schema}.remains(s.number, p_froms[i], NULL, false, false)
					AND {schema}.alike(s.number, p_sinces[i], come, greatest(p_batch, s.take));
			END IF;
			IF s.first <= come AND NOT s.direct THEN
				SELECT m.promoted, s.prompts OR m.prompts, s.suspects OR m.suspects, s.early OR m.promoted > 0, true
				INTO s.promoted, s.prompts, s.suspects, s.early, changed -- they may stand before lows
				FROM {schema}.promote(s.number, now, come, p_batch) m;
			END IF;
			IF s.tick <= come THEN
				changed := true;
				RETURN QUERY
				SELECT (CASE WHEN t.queue = s.number THEN 'k' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags,
					t.priority, t.past, t.record
				FROM {schema}.hide(s.number, now, come, p_batch) t;
			END IF;
			IF s.direct THEN
				SELECT d.cs, d.was, d.used, d.seen INTO s.cs, s.was, s.used, s.seen
				FROM {schema}.due(s.number, p_sinces[i], come, s.take, room, done = 0) d;
			ELSIF s.take > 0 AND (done >= p_start OR NOT s.prompts AND NOT (s.suspects AND p_suspect AND NOT suspect)) THEN
				SELECT w.cs, w.used, w.seen, w.last INTO s.cs, s.used, s.seen, s.last
				FROM {schema}.plain(s.number, CASE WHEN s.early THEN p_lows[i] END, p_froms[i], s.take, room, done = 0) w;
			ELSIF s.take > 0 THEN
				SELECT m.cs, m.used, m.seen, step.suspect OR m.suspect INTO s.cs, s.used, s.seen, suspect
				FROM {schema}.mixed(s.number, s.take, p_start - done, p_suspect AND NOT suspect, room, done = 0) m;
			END IF;
			IF cardinality(s.cs) > 0 THEN
				RETURN QUERY -- in the order of its places, in which the join finds it
				UPDATE {schema}.tasks t
				SET line = s.number * 16 + 4, sort = now + p_lease, lease = p_holder,
					version = greatest(least(t.version, 4000000000000000000) + 1, base + done + k.n - 1),
					flags = (t.flags & ~2::int2) | CASE WHEN done + k.n <= p_start THEN 2::int2 ELSE 0::int2 END,
					past = CASE WHEN t.past = '' THEN int8send(t.version) ELSE t.past END
				FROM unnest(s.cs) WITH ORDINALITY AS k (c, n) WHERE t.ctid = k.c
				RETURNING (CASE WHEN t.queue = s.number THEN 't' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags,
					t.priority, t.past, t.record;
				GET DIAGNOSTICS s.got = ROW_COUNT;
				INSERT INTO {schema}.deltas (queue, waiting, pending, scheduled, retry)
				SELECT s.number, cardinality(s.was) - s.got, s.got, -w.sixes, w.sixes - cardinality(s.was)
				FROM cardinality(array_positions(s.was, 6)) AS w (sixes);
				done := done + s.got;
				room := room - s.used;
				changed := true;
			END IF;
		END IF;
		IF NOT more AND p_max > 0 AND p_maxes[i] >= 0 AND NOT s.held
				AND (lane = 'r' OR s.got >= s.take OR s.seen > s.got OR s.prompts OR s.suspects)
				AND (s.seen > s.got OR {schema}.remains(s.number,
					CASE WHEN lane = 'r' OR s.got >= s.take THEN greatest(p_froms[i], s.last) END,
					CASE WHEN (lane = 'r' OR s.got >= s.take) AND p_lows[i] < p_froms[i] THEN p_lows[i] END,
					p_start > 0 AND (s.prompts OR s.suspects), p_suspect AND NOT suspect)) THEN
			-- What a claim with room for it leaves is in somebody's transaction: later, then.
			more := done > 0 OR s.take = 0 OR lane = 'r';
			next := least(next, CASE WHEN NOT more THEN now + 100000 END);
		END IF;
		IF least(s.first, s.tick) <= come OR s.held AND s.held_until > 0 THEN
			SELECT least(step.next, x.next), step.more OR x.more, step.clean AND x.clean INTO next, more, clean
			FROM {schema}.outlook(s.number, now, come, p_sinces[i], least(s.first, s.tick),
				s.promoted + done > 0 OR lane = 'r' OR s.first > come IS NOT FALSE, CASE WHEN s.held THEN s.held_until END) x;
		ELSE
			next := least(next, s.first, s.tick);
		END IF;
		places := places || int8send(s.last);
	END LOOP;
	IF come = 0 THEN -- nothing that is timed happens before the end of the wait
		next := pg_sequence_last_value('{schema}.jumped'::regclass) + {jumpwait};
		clean := false;
	END IF;
	IF NOT changed THEN
		-- Nothing happened but that the call is remembered: no need to wait for the disk.
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	RETURN QUERY SELECT 'h'::"char", 0, int8send(base), now, next,
		(more::int4 + 2 * cancels::int4 + 4 * clean::int4)::int2, 0::int2, numbers, places;
END $$;
