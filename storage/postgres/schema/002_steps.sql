-- The steps that are hot, one round trip each. Their plans are kept by the server for
-- each connection, whatever sits between it and the client, and the settings of each
-- make its plans independent of statistics: every access is along an index. What only
-- other steps call has the settings of those; to set some costs as much as a small step.

-- told gives the time by the server's clock. It costs no call: the planner puts its body there.
CREATE FUNCTION {schema}.told() RETURNS int8 LANGUAGE sql AS $$
	SELECT (date_part('epoch', clock_timestamp()) * 1000000)::int8
$$;

-- stamp reserves n versions from the mark on and gives the first: now, by the clock, where the
-- mark is not further. The mark stands a little ahead of what was given, so that few steps have
-- to move it; where the clock has fallen behind it by more than that it was set back, and the
-- mark moves on one by one: of two steps that set it one could move it back.
CREATE FUNCTION {schema}.stamp(now int8, n int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	mark int8 := coalesce(pg_sequence_last_value('{schema}.mark'::regclass), 0);
	base int8;
BEGIN
	IF now + n <= mark AND now + 20000 >= mark THEN
		RETURN now;
	ELSIF now + 20000 < mark THEN
		base := nextval('{schema}.mark');
		PERFORM nextval('{schema}.mark') FROM generate_series(2, n);
		RETURN base;
	ELSIF now > mark + {jumpafter} THEN
		PERFORM {schema}.come(now); -- a wait may begin
	END IF;
	PERFORM setval('{schema}.mark', now + least(n, 10000) + 2000);
	RETURN now;
END $$;

-- come gives the moment up to which what is timed happens: now, by the clock, or 0 in a wait.
-- One begins where the clock is far past the mark, which is that of the last step. A clock that
-- is before the beginning jumped back.
CREATE FUNCTION {schema}.come(now int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	mark int8 := coalesce(pg_sequence_last_value('{schema}.mark'::regclass), 0);
	began int8 := coalesce(pg_sequence_last_value('{schema}.jumped'::regclass), 1);
BEGIN
	IF began = 1 AND mark > 0 AND now > mark + {jumpafter} THEN
		PERFORM setval('{schema}.jumped', now);
		RETURN 0;
	ELSIF began > 1 AND now >= began AND now < began + {jumpwait} THEN
		RETURN 0;
	ELSIF began > 1 THEN
		PERFORM setval('{schema}.jumped', 1);
	END IF;
	RETURN now;
END $$;

-- admit decides which calls happen: those whose number is new to a lane that lives, and was
-- not opened ahead of the clock. It gives the lanes admitted, and keeps their numbers and the
-- version from which each is to count. One call that is on its way twice waits here for itself.
CREATE FUNCTION {schema}.admit(lanes bytea[], opens int8[], seqs int8[], bases int8[], v "char", now int8)
RETURNS SETOF bytea LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY
	INSERT INTO {schema}.lanes AS l (lane, opened, seq, base, verb)
	SELECT u.lane, u.opened, u.seq, u.base, v
	FROM unnest(lanes, opens, seqs, bases) AS u (lane, opened, seq, base)
	WHERE u.opened BETWEEN now - {lanelife} AND now + {lanelife}
		OR EXISTS (SELECT FROM {schema}.lanes k WHERE k.lane = u.lane)
	ON CONFLICT (lane) DO UPDATE
	SET seq = excluded.seq, base = excluded.base, verb = excluded.verb, outcome = ''
	WHERE l.seq < excluded.seq AND l.opened BETWEEN now - {lanelife} AND now + {lanelife}
	RETURNING l.lane;
END $$;

-- enqueue carries out calls that ask for nothing but plain inserts (no unique key, no
-- cursor), if all of them go as expected; else it does nothing and gives base 0, or
-- raises an error of its own (P0001).
--
-- Each call counts from base plus its offset (offs), each insert is made at base plus its
-- own (ats). A due moment is absolute where positive, from then on where negative, then
-- where 0. span is how many versions there are in all. An absolute moment is as expected only
-- where the clock is not behind the mark: its outcome is told by the versions alone. dqueues, dwaiting and dscheduled
-- say how many of a queue are expected to wait and to be scheduled; timed that some have
-- an absolute moment, which decides it. All ids are between low and high, where these are not
-- empty: then they are of one queue, and so close that few others can be between them.
-- rung are the queues with new work, or with something due earlier than all else; those
-- of them that are in loud are notified with the commit.
CREATE FUNCTION {schema}.enqueue(
	span int8, lanes bytea[], opens int8[], seqs int8[], offs int8[],
	queues int4[], ids bytea[], ats int8[], dues int8[], priorities int2[], marks int2[], records bytea[],
	dqueues int4[], dwaiting int4[], dscheduled int4[], timed bool, low bytea, high bytea,
	channel text, sender text, loud int4[],
	OUT base int8, OUT rung int4[]
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET lock_timeout = '50ms' AS $$
DECLARE
	now int8 := {schema}.told();
	born bytea := '';
BEGIN
	base := {schema}.stamp(now, span);
	IF base <> now THEN
		born := int8send(now);
	END IF;
	IF timed THEN -- by itself: a query in a condition is prepared even where it is not asked
		IF base <> now OR EXISTS (
			SELECT FROM (
				SELECT u.queue, count(*) FILTER (WHERE u.due < 0 OR u.due > base + u.at) AS n
				FROM unnest(queues, ats, dues) AS u (queue, at, due) GROUP BY u.queue
			) have JOIN unnest(dqueues, dscheduled) AS want (queue, n) ON want.queue = have.queue AND want.n <> have.n
		) THEN
			base := 0;
			RETURN;
		END IF;
	END IF;
	-- An insert that may conflict looks for each id before and confirms it afterwards, which
	-- costs almost as much as the insert. Here a conflict takes back all of them.
	BEGIN
		INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
		SELECT CASE WHEN u.due < 0 THEN now + u.at - u.due WHEN u.due > base + u.at THEN u.due
				ELSE ((9 - u.priority)::int8 << 56) + base + u.at END,
			base + u.at, base + u.at, u.queue,
			u.queue * 16 + CASE WHEN u.due < 0 OR u.due > base + u.at THEN 6 ELSE 1 END,
			u.mark, u.priority, u.id, '', born, u.record
		FROM unnest(queues, ids, ats, dues, priorities, marks, records)
			AS u (queue, id, at, due, priority, mark, record);
		IF (low = '' OR EXISTS (
			SELECT FROM {schema}.ended e WHERE e.queue = queues[1] AND e.id >= low AND e.id <= high
		)) AND {schema}.kept(queues, ids) THEN
			RAISE unique_violation;
		END IF;
	EXCEPTION WHEN unique_violation THEN
		base := 0;
		RETURN;
	END;
	IF cardinality(lanes) > 0 AND NOT {schema}.present(lanes, opens, seqs, offs, base, now) THEN
		-- A repeat of something that has gone. Lanes of other calls may have been admitted
		-- by now: all is rolled back, so that none remembers what did not happen.
		RAISE 'a call is repeated, after its tasks have ended';
	END IF;
	IF cardinality(dqueues) = 1 THEN
		INSERT INTO {schema}.deltas (queue, waiting, scheduled, t_enqueued)
		VALUES (dqueues[1], dwaiting[1], dscheduled[1], dwaiting[1] + dscheduled[1]);
	ELSE
		INSERT INTO {schema}.deltas (queue, waiting, scheduled, t_enqueued)
		SELECT u.queue, u.w, u.s, u.w + u.s FROM unnest(dqueues, dwaiting, dscheduled) AS u (queue, w, s);
	END IF;
	IF dscheduled = array_fill(0, ARRAY[cardinality(dqueues)]) THEN
		rung := dqueues;
	ELSE
		rung := {schema}.concerned(queues, ats, dues, dqueues, dwaiting, now);
	END IF;
	IF cardinality(loud) > 0 AND rung && loud THEN
		PERFORM {schema}.ring(channel, sender, 'w', ARRAY(SELECT unnest(rung) INTERSECT SELECT unnest(loud)));
	END IF;
END $$;

-- add is enqueue for a lone insert that is to wait, as most are: half as long a step. It
-- gives the task's version, or 0 where something does not go as expected and nothing
-- was done. note is what is notified with the commit, if anything.
--
-- What a function declares to be set costs as much as one of its statements: here it is set
-- for what is left of the transaction.
CREATE FUNCTION {schema}.add(
	p_lane bytea, p_opened int8, p_seq int8, p_queue int4, p_id bytea, p_priority int2, p_mark int2,
	p_record bytea, channel text, note text
) RETURNS int8 LANGUAGE plpgsql AS $$
<<step>>
DECLARE
	waited text := current_setting('lock_timeout');
	waits text := set_config('lock_timeout', '50ms', true);
	scans text := set_config('enable_seqscan', 'off', true);
	now int8 := {schema}.told();
	base int8 := {schema}.stamp(now, 2);
BEGIN
	IF p_opened NOT BETWEEN now - {lanelife} AND now + {lanelife} THEN
		RETURN 0;
	END IF;
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	VALUES (((9 - p_priority)::int8 << 56) + base, base, base, p_queue, p_queue * 16 + 1, p_mark,
		p_priority, p_id, '', CASE WHEN base = now THEN '' ELSE int8send(now) END, p_record)
	ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RETURN 0;
	END IF;
	-- A statement of its own: the insert may have waited for a settle of the same id.
	INSERT INTO {schema}.lanes AS l (lane, opened, seq, base, verb)
	SELECT p_lane, p_opened, p_seq, step.base, 'a'
	WHERE NOT EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = p_queue AND e.id = p_id)
	ON CONFLICT (lane) DO UPDATE SET seq = excluded.seq, base = excluded.base, verb = 'a', outcome = ''
	WHERE l.seq < excluded.seq AND l.opened BETWEEN now - {lanelife} AND now + {lanelife};
	IF NOT FOUND THEN
		PERFORM {schema}.unmake(ARRAY[p_queue], ARRAY[p_id], ARRAY[0::int8], base);
		RETURN 0;
	END IF;
	INSERT INTO {schema}.deltas (queue, waiting, t_enqueued) VALUES (p_queue, 1, 1);
	IF note <> '' THEN -- the commit takes a lock of the whole server then, however long that takes
		waits := set_config('lock_timeout', waited, true);
		PERFORM pg_notify(channel, note);
	END IF;
	RETURN base;
END $$;

-- unstick ends connections on which a large enqueue has been waiting for its rows for longer than
-- any client takes: its process is frozen, or unreachable. No setting of the server's bounds that,
-- and meanwhile its transaction keeps every vacuum from what has died. Of roles that this one is
-- no member of it cannot end any.
CREATE FUNCTION {schema}.unstick(seconds float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	stuck int4;
BEGIN
	FOR stuck IN
		SELECT a.pid FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.state = 'active' AND a.wait_event = 'ClientRead'
			AND starts_with(a.query, 'COPY {schema}.tasks ') AND a.query LIKE '% BINARY'
			AND a.query_start < clock_timestamp() - make_interval(secs => seconds) AND {schema}.come({schema}.told()) > 0
	LOOP
		BEGIN
			PERFORM pg_terminate_backend(stuck);
		EXCEPTION WHEN insufficient_privilege THEN
			CONTINUE;
		END;
	END LOOP;
END $$;

-- opened begins a large enqueue: it reserves its versions and gives the first, or 0 where one of
-- these ids is taken, or some are due at a moment (timed) and the clock is behind the mark.
CREATE FUNCTION {schema}.opened(span int8, queues int4[], ids bytea[], timed bool, OUT base int8, OUT now int8)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	base := 0;
	now := {schema}.told();
	PERFORM FROM unnest(queues, ids) AS u (queue, id)
	WHERE (SELECT true FROM {schema}.tasks t WHERE t.queue = u.queue AND t.id = u.id) LIMIT 1;
	IF NOT FOUND THEN
		base := {schema}.stamp(now, span);
	END IF;
	IF timed AND base <> now THEN
		base := 0;
	END IF;
END $$;

-- copied ends a large enqueue, whose rows were copied into tasks under versions from base on:
-- like enqueue, with when the first task of each queue that is scheduled is due (firsts). It
-- raises an error of its own (P0001) where something is not as expected. Ids are told only where
-- they are not close.
CREATE FUNCTION {schema}.copied(
	base int8, lanes bytea[], opens int8[], seqs int8[], offs int8[], queues int4[], ids bytea[], low bytea,
	high bytea, dqueues int4[], dwaiting int4[], dscheduled int4[], firsts int8[],
	channel text, sender text, loud int4[]
) RETURNS int4[] LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	now int8 := {schema}.told(); -- what was due since the rows were made may have been claimed
	rung int4[];
BEGIN
	IF low = '' AND {schema}.kept(queues, ids) OR low <> '' AND EXISTS (
		SELECT FROM {schema}.ended e WHERE e.queue = dqueues[1] AND e.id >= low AND e.id <= high
			AND (SELECT true FROM {schema}.tasks t WHERE t.queue = e.queue AND t.id = e.id)
	) THEN
		RAISE 'an id is that of a task which has ended';
	END IF;
	IF cardinality(lanes) > 0 AND NOT {schema}.present(lanes, opens, seqs, offs, base, now) THEN
		RAISE 'a call is repeated, after its tasks have ended';
	END IF;
	INSERT INTO {schema}.deltas (queue, waiting, scheduled, t_enqueued)
	SELECT d.queue, d.w, d.s, d.w + d.s FROM unnest(dqueues, dwaiting, dscheduled) AS d (queue, w, s);
	rung := ARRAY(
		SELECT d.queue FROM unnest(dqueues, dwaiting, firsts) AS d (queue, w, first)
		WHERE d.w > 0 OR d.first <= now OR {schema}.soonest(d.queue, now) >= d.first);
	IF cardinality(loud) > 0 AND rung && loud THEN
		PERFORM {schema}.ring(channel, sender, 'w', ARRAY(SELECT unnest(rung) INTERSECT SELECT unnest(loud)));
	END IF;
	RETURN rung;
END $$;

-- kept reports whether one of these ids is that of a task which has ended. It is asked
-- after the insert, which waited for a settle of the same id that was under way.
CREATE FUNCTION {schema}.kept(queues int4[], ids bytea[]) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF cardinality(ids) = 1 THEN
		RETURN EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = queues[1] AND e.id = ids[1]);
	END IF;
	PERFORM FROM unnest(queues, ids) AS u (queue, id)
	WHERE (SELECT true FROM {schema}.ended e WHERE e.queue = u.queue AND e.id = u.id) LIMIT 1;
	RETURN FOUND;
END $$;

-- unmake takes back what this transaction has inserted at these moments.
CREATE FUNCTION {schema}.unmake(queues int4[], ids bytea[], ats int8[], base int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.tasks t USING (
		SELECT u.at, (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, ats) AS u (queue, id, at) OFFSET 0
	) u WHERE t.ctid = u.c AND t.version = base + u.at AND t.xmin::text = (pg_current_xact_id()::text::int8 % 4294967296)::text;
END $$;

-- present admits calls that go as expected and reports whether all of them were admitted.
-- Where it reports false some may have been: the caller rolls back, or had but one. Lanes are
-- compared so that no plan but one look for each can find them, and their age stands in a
-- call, which tells the planner nothing: as a mere range it made it read all lanes.
CREATE FUNCTION {schema}.present(lanes bytea[], opens int8[], seqs int8[], offs int8[], p_base int8, now int8)
RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	n int8;
BEGIN
	IF cardinality(lanes) = 1 THEN
		UPDATE {schema}.lanes l SET seq = seqs[1], base = p_base + offs[1], verb = 'a', outcome = ''
		WHERE l.lane = lanes[1] AND l.seq < seqs[1] AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
	ELSE
		UPDATE {schema}.lanes l SET seq = u.seq, base = p_base + u.off, verb = 'a', outcome = ''
		FROM unnest(lanes, seqs, offs) AS u (lane, seq, off)
		WHERE l.lane >= u.lane AND l.lane <= u.lane AND l.seq < u.seq
			AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
	END IF;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n < cardinality(lanes) THEN -- some are new
		SELECT n + count(*) INTO n FROM {schema}.admit(lanes, opens, seqs, ARRAY(
			SELECT p_base + o.off FROM unnest(offs) WITH ORDINALITY AS o (off, n) ORDER BY o.n), 'a', now);
	END IF;
	RETURN n = cardinality(lanes);
END $$;

-- concerned gives the queues of an enqueue that somebody may wait for: those with new
-- work, and those in which something is now due earlier than all else.
CREATE FUNCTION {schema}.concerned(
	queues int4[], ats int8[], dues int8[], dqueues int4[], dwaiting int4[], now int8
) RETURNS int4[] LANGUAGE plpgsql AS $$
BEGIN
	RETURN ARRAY(
		SELECT d.queue FROM unnest(dqueues, dwaiting) AS d (queue, w)
		WHERE d.w > 0 OR {schema}.soonest(d.queue, now) >= (
			SELECT min(CASE WHEN u.due < 0 THEN now + u.at - u.due ELSE u.due END)
			FROM unnest(queues, ats, dues) AS u (queue, at, due) WHERE u.queue = d.queue));
END $$;

-- finish carries out calls that ask for nothing but completions and plain inserts, if all
-- of them go as expected; else it does nothing and gives base 0. The completions, by
-- queue, id, version and token, sorted by the first two, take no moments of their own here.
CREATE FUNCTION {schema}.finish(
	span int8, lanes bytea[], opens int8[], seqs int8[], offs int8[],
	queues int4[], ids bytea[], ats int8[], dues int8[], priorities int2[], marks int2[], records bytea[],
	dqueues int4[], dwaiting int4[], dscheduled int4[], timed bool, low bytea, high bytea,
	channel text, sender text, loud int4[],
	ends int4[], endids bytea[], versions int8[], tokens bytea[],
	OUT base int8, OUT rung int4[]
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET lock_timeout = '50ms' AS $$
DECLARE
	n int8;
	now int8;
BEGIN
	-- Each row is looked up by its id, whatever the planner believes: told the ids as a list, or
	-- that queues are equal, it would read a table that it takes for empty from end to end, with
	-- all that died there. By what it knows these comparisons find many, enough to compile them.
	DELETE FROM {schema}.tasks t USING unnest(ends, endids, versions, tokens) AS u (queue, id, version, token)
	WHERE t.queue = ANY (ARRAY[u.queue]) AND t.id >= u.id AND t.id <= u.id
		AND t.version = u.version AND t.line & 15 = 4 AND t.flags & 1 = 0 AND substr(t.lease, 1, 16) = u.token;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n <> cardinality(ends) THEN
		RAISE 'not as expected';
	END IF;
	IF ends[1] = ends[n] THEN
		INSERT INTO {schema}.deltas (queue, pending, t_completed) VALUES (ends[1], -n, n);
	ELSE
		INSERT INTO {schema}.deltas (queue, pending, t_completed)
		SELECT e.queue, -count(*), count(*) FROM unnest(ends) AS e (queue) GROUP BY e.queue;
	END IF;
	IF cardinality(ids) > 0 THEN
		SELECT e.base, e.rung INTO base, rung FROM {schema}.enqueue(span, lanes, opens, seqs, offs, queues, ids,
			ats, dues, priorities, marks, records, dqueues, dwaiting, dscheduled, timed, low, high, channel, sender,
			loud) e;
	ELSE
		now := {schema}.told();
		base := {schema}.stamp(now, span);
		IF cardinality(lanes) > 0 AND NOT {schema}.present(lanes, opens, seqs, offs, base, now) THEN
			base := 0;
		END IF;
	END IF;
	IF base = 0 THEN
		RAISE 'not as expected';
	END IF;
EXCEPTION WHEN raise_exception OR lock_not_available THEN
	base := 0;
	rung := NULL;
END $$;

-- soonest gives when something in a queue is due next after a moment, or null. Cursors
-- count whenever they are due.
CREATE FUNCTION {schema}.soonest(q int4, since int8) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
	RETURN least(
		(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q * 16 + 6 AND t.sort > since ORDER BY t.sort LIMIT 1),
		(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q * 16 + 7 AND t.sort > since ORDER BY t.sort LIMIT 1),
		(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q * 16 + 8 AND t.sort < 9223372036854775807
			ORDER BY t.sort LIMIT 1));
END $$;

-- ring sends a wake-up for queues with the commit: who sends, "w" for work or "c" for
-- what concerns those without a free slot too, then queue numbers.
CREATE FUNCTION {schema}.ring(channel text, sender text, kind text, queues int4[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..cardinality(queues) BY 500 LOOP
		PERFORM pg_notify(channel, sender || ' ' || kind || ' ' || array_to_string(queues[i:i + 499], ','));
	END LOOP;
END $$;

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
	known record;
	r record;
	-- Of the queue that is looked at.
	number int4;
	held bool;
	held_until int8;
	unusual bool;
	early bool;
	first int8;
	tick int8;
	repeated bool := false;
	suspect bool := false;
	changed bool := false;
	more bool := false;
	cancels bool := false;
	next int8;
	due int8;
	tail int8;
	take int4;
	done int4 := 0;
	got int4;
	seen int4;
	promoted int4;
	rest bool;
	used int8;
	room int8 := p_room;
	cs tid[];
	numbers bytea := '';
	places bytea := '';
	clean bool := NOT p_maintained;
	last int8;
	prompts bool;
	suspects bool;
	direct bool;
	was int4[];
	sixes int4;
BEGIN
	IF NOT p_maintained THEN
		RETURN QUERY
		SELECT 'm'::"char", u.n::int4, NULL::bytea, 0::int8, q.queue::int8, 0::int2, 0::int2,
			NULL::bytea, NULL::bytea
		FROM unnest(p_names) WITH ORDINALITY AS u (name, n)
		JOIN {schema}.queues q ON q.name = u.name
		WHERE {schema}.behind(q.queue, p_sinces[u.n], come);
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	base := {schema}.stamp(now, p_max + 1);
	IF p_seq > 0 THEN
		UPDATE {schema}.lanes l SET seq = p_seq, base = step.base, verb = 'c', outcome = ''
		WHERE l.lane = p_lane AND l.seq < p_seq AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
		IF NOT FOUND THEN -- new, or not to be carried out
			PERFORM FROM {schema}.admit(ARRAY[p_lane], ARRAY[p_opened], ARRAY[p_seq], ARRAY[base], 'c', now);
		END IF;
		IF NOT FOUND THEN
			SELECT l.seq, l.verb INTO known FROM {schema}.lanes l WHERE l.lane = p_lane;
			IF NOT FOUND OR known.seq < p_seq THEN
				RETURN QUERY SELECT 'x'::"char", 0, NULL::bytea, now, NULL::int8, 0::int2, 0::int2,
					NULL::bytea, NULL::bytea;
				RETURN;
			ELSIF known.seq > p_seq OR known.verb <> 'c' THEN
				RETURN QUERY SELECT 'v'::"char", 0, NULL::bytea, now, NULL::int8, 0::int2, 0::int2,
					NULL::bytea, NULL::bytea;
				RETURN;
			END IF;
			repeated := true;
		END IF;
	END IF;
	FOR i IN 1..cardinality(p_names) LOOP
		SELECT q.queue, q.paused AND (q.paused_until = 0 OR q.paused_until > now), q.paused_until,
			EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[q.queue * 16 + 2, q.queue * 16 + 3,
				q.queue * 16 + 5])),
			EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 1 AND t.sort < p_lows[i]),
			least(
				(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 6 AND t.sort > p_sinces[i]
					ORDER BY t.sort LIMIT 1),
				(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 7 AND t.sort > p_sinces[i]
					ORDER BY t.sort LIMIT 1)),
			(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 8 AND t.sort < 9223372036854775807
				ORDER BY t.sort LIMIT 1),
			-- To set them here costs nothing, each in an assignment as much as a call.
			false, false, 0, 0, 0, 0, 0::int8, false, 0, '{}'::int4[], '{}'::tid[], 0::int8
		INTO number, held, held_until, unusual, early, first, tick,
			prompts, suspects, take, got, seen, promoted, last, direct, sixes, was, cs, used
		FROM {schema}.queues q WHERE q.name = p_names[i];
		IF NOT FOUND THEN
			numbers := numbers || int4send(0);
			places := places || int8send(0);
			CONTINUE;
		END IF;
		numbers := numbers || int4send(number);
		IF unusual THEN
			SELECT cancels OR o.asked, o.prompt, o.suspect INTO cancels, prompts, suspects FROM {schema}.odd(number) o;
		END IF;
		IF repeated THEN
			RETURN QUERY
			SELECT (CASE WHEN t.queue = number THEN 't' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags, t.priority, t.past, t.record
			FROM {schema}.tasks t
			WHERE t.line IN (number * 16 + 4, number * 16 + 5) AND substr(t.lease, 1, 16) = substr(p_holder, 1, 16)
			ORDER BY t.version;
		ELSE
			take := CASE WHEN held OR p_maxes[i] < 0 OR room <= 0 THEN 0
				ELSE least(p_max - done, CASE WHEN p_maxes[i] = 0 THEN p_max ELSE p_maxes[i] END) END;
			IF first <= come THEN
				direct := take > 0 AND NOT prompts AND NOT suspects AND NOT early
					AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 1 AND t.sort >= p_froms[i])
					AND {schema}.alike(number, p_sinces[i], come, greatest(p_batch, take));
			END IF;
			IF first <= come AND NOT direct THEN
				changed := true;
				tail := {schema}.stamp(now, 2 * p_batch + 1);
				WITH a AS MATERIALIZED (
					SELECT t.ctid AS c, t.sort AS due, t.turn, t.line & 15 AS was FROM {schema}.tasks t
					WHERE t.line = number * 16 + 6 AND t.sort <= come
					ORDER BY t.sort, t.turn LIMIT p_batch FOR UPDATE SKIP LOCKED
				), b AS MATERIALIZED (
					SELECT t.ctid AS c, t.sort AS due, t.turn, t.line & 15 AS was FROM {schema}.tasks t
					WHERE t.line = number * 16 + 7 AND t.sort <= come
					ORDER BY t.sort, t.turn LIMIT p_batch FOR UPDATE SKIP LOCKED
				), ranked AS (
					SELECT x.c, x.was, row_number() OVER (ORDER BY x.due, x.turn) AS n
					FROM (SELECT * FROM a UNION ALL SELECT * FROM b) x
				), moved AS (
					UPDATE {schema}.tasks t
					SET line = number * 16
							+ CASE WHEN t.flags & 8 > 0 THEN 3 WHEN t.flags & 4 > 0 THEN 2 ELSE 1 END,
						sort = ((9 - t.priority)::int8 << 56) + tail + k.n
					FROM ranked k WHERE t.ctid = k.c
					RETURNING k.was, t.flags
				), kept AS (
					INSERT INTO {schema}.deltas (queue, waiting, scheduled, retry)
					SELECT number, count(*), -count(*) FILTER (WHERE m.was = 6),
						-count(*) FILTER (WHERE m.was = 7)
					FROM moved m HAVING count(*) > 0
				)
				SELECT prompts OR coalesce(bool_or(m.flags & 12 = 4), false),
					suspects OR coalesce(bool_or(m.flags & 8 > 0), false), count(*)
				INTO prompts, suspects, promoted FROM moved m;
				early := early OR promoted > 0; -- they may stand before lows
			END IF;
			IF tick <= come THEN
				changed := true;
				RETURN QUERY
				WITH a AS MATERIALIZED (
					SELECT t.ctid AS c FROM {schema}.tasks t
					WHERE t.line = number * 16 + 8 AND t.sort <= come
					ORDER BY t.sort, t.turn LIMIT p_batch FOR UPDATE SKIP LOCKED
				)
				UPDATE {schema}.tasks t SET sort = now + 2000000 FROM a WHERE t.ctid = a.c
				RETURNING (CASE WHEN t.queue = number THEN 'k' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags, t.priority, t.past, t.record;
			END IF;
			IF take > 0 THEN
				IF direct THEN
					SELECT d.cs, d.was, d.used INTO cs, was, used
					FROM {schema}.due(number, p_sinces[i], come, take) d;
					seen := cardinality(cs);
					IF used > room THEN
						SELECT f.cs, f.used INTO cs, used FROM {schema}.fitting(cs, room, done = 0) f;
						was := was[1:cardinality(cs)];
					END IF;
					sixes := cardinality(array_positions(was, 6));
				ELSIF done >= p_start OR NOT prompts AND NOT (suspects AND p_suspect AND NOT suspect) THEN
					IF early THEN
						SELECT coalesce(array_agg(x.c), '{}'), coalesce(sum(x.size), 0), count(*) INTO cs, used, seen
						FROM (
							SELECT t.ctid AS c, octet_length(t.record) AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 1 AND t.sort < p_lows[i]
							ORDER BY t.sort LIMIT take FOR UPDATE SKIP LOCKED
						) x;
						IF used > room THEN
							SELECT f.cs, f.used INTO cs, used FROM {schema}.fitting(cs, room, done = 0) f;
						END IF;
					END IF;
					IF seen < take AND seen = cardinality(cs) THEN
						SELECT cs || coalesce(array_agg(x.c), '{}'), used + coalesce(sum(x.size), 0), seen + count(*)::int4,
							coalesce(max(x.sort), 0)
						INTO cs, used, seen, last
						FROM (
							SELECT t.ctid AS c, t.sort, octet_length(t.record) AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 1 AND t.sort >= p_froms[i]
							ORDER BY t.sort LIMIT take - seen FOR UPDATE SKIP LOCKED
						) x;
						IF used > room THEN
							SELECT f.cs, f.used, CASE WHEN f.last >= p_froms[i] THEN f.last ELSE 0 END INTO cs, used, last
							FROM {schema}.fitting(cs, room, done = 0) f;
						END IF;
					END IF;
				ELSE
					FOR r IN
						WITH a AS MATERIALIZED (
							SELECT t.ctid AS c, t.sort, t.line & 15 AS state, octet_length(t.record)::int8 AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 1
							ORDER BY t.sort LIMIT take FOR UPDATE SKIP LOCKED
						), b AS MATERIALIZED (
							SELECT t.ctid AS c, t.sort, t.line & 15 AS state, octet_length(t.record)::int8 AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 2
							ORDER BY t.sort LIMIT least(take, p_start - done) FOR UPDATE SKIP LOCKED
						), s AS MATERIALIZED (
							SELECT t.ctid AS c, t.sort, t.line & 15 AS state, octet_length(t.record)::int8 AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 3
								AND p_suspect AND NOT suspect
							ORDER BY t.sort LIMIT 1 FOR UPDATE SKIP LOCKED
						)
						SELECT x.* FROM (SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM s) x
						ORDER BY x.sort
					LOOP
						EXIT WHEN cardinality(cs) = take;
						CONTINUE WHEN r.state > 1 AND done + cardinality(cs) >= p_start;
						seen := seen + 1;
						IF used + r.size > room AND done + cardinality(cs) > 0 THEN
							EXIT;
						END IF;
						cs := cs || r.c;
						used := used + r.size;
						suspect := suspect OR r.state = 3;
					END LOOP;
				END IF;
				IF cardinality(cs) > 0 THEN
					RETURN QUERY -- in the order of cs, in which the join finds them
					UPDATE {schema}.tasks t
					SET line = number * 16 + 4, sort = now + p_lease, version = greatest(least(t.version, 4000000000000000000) + 1, base + done + k.n - 1),
						flags = (t.flags & ~2::int2) | CASE WHEN done + k.n <= p_start THEN 2::int2 ELSE 0::int2 END,
						lease = p_holder,
						past = CASE WHEN t.past = '' THEN int8send(t.version) ELSE t.past END
					FROM unnest(cs) WITH ORDINALITY AS k (c, n)
					WHERE t.ctid = k.c
					RETURNING (CASE WHEN t.queue = number THEN 't' ELSE 'd' END)::"char", i, t.id, t.version, t.sort, t.flags, t.priority, t.past, t.record;
					GET DIAGNOSTICS got = ROW_COUNT;
					INSERT INTO {schema}.deltas (queue, waiting, pending, scheduled, retry)
					VALUES (number, cardinality(was) - got, got, -sixes, sixes - cardinality(was));
					done := done + got;
					room := room - used;
					changed := true;
				END IF;
			END IF;
		END IF;
		IF NOT more AND p_max > 0 AND p_maxes[i] >= 0 AND NOT held
				AND (repeated OR got >= take OR seen > got OR prompts OR suspects) THEN
			rest := NOT repeated AND take > 0 AND seen > got;
			IF NOT rest AND (repeated OR got >= take) THEN
				rest := EXISTS (
					SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 1 AND t.sort >= greatest(p_froms[i], last));
			END IF;
			IF NOT rest AND (repeated OR got >= take) AND p_lows[i] < p_froms[i] THEN
				rest := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 1 AND t.sort < p_lows[i]);
			END IF;
			IF NOT rest AND p_start > 0 AND (prompts OR suspects) THEN
				rest := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 2)
					OR p_suspect AND NOT suspect
						AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 3);
			END IF;
			-- What a claim with room for it leaves is in somebody's transaction: later, then.
			IF rest AND (done > 0 OR take = 0 OR repeated) THEN
				more := true;
			ELSIF rest THEN
				next := least(next, now + 100000);
			END IF;
		END IF;
		due := least(first, tick);
		IF due <= come THEN -- no longer, perhaps
			due := {schema}.soonest(number, p_sinces[i]);
			IF due <= come AND (promoted + done > 0 OR repeated OR first > come IS NOT FALSE) THEN
				more := true;
				clean := false;
			ELSIF due <= come THEN -- locked too
				due := now + 100000;
				clean := false;
			END IF;
		END IF;
		next := least(next, due);
		places := places || int8send(last);
		IF held AND held_until > 0 AND (next IS NULL OR held_until < next) THEN
			IF EXISTS (
				SELECT FROM {schema}.tasks t WHERE t.line IN (number * 16 + 1, number * 16 + 2, number * 16 + 3)
			) THEN
				next := held_until;
			END IF;
		END IF;
	END LOOP;
	IF come = 0 THEN -- nothing that is timed happens before the end of the wait
		next := pg_sequence_last_value('{schema}.jumped'::regclass) + {jumpwait};
		clean := false;
	END IF;
	IF NOT changed THEN
		-- Nothing happened but that the call is remembered: no need to wait for the disk.
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	o_kind := 'h';
	o_place := 0;
	o_id := int8send(base);
	o_version := now;
	o_at := next;
	o_flags := more::int4 + 2 * cancels::int4 + 4 * clean::int4;
	o_priority := 0;
	o_past := numbers;
	o_record := places;
	RETURN NEXT;
END $$;

-- odd says what a queue has that few have: tasks that may only start at once, suspects,
-- and tasks that run and whose cancel was asked.
CREATE FUNCTION {schema}.odd(q int4, OUT prompt bool, OUT suspect bool, OUT asked bool) LANGUAGE plpgsql AS $$
BEGIN
	prompt := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 2);
	suspect := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 3);
	asked := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 5);
END $$;

-- alike reports whether what is due first, since a moment, has one priority and may be
-- claimed by anybody, so that it can be taken in the order in which it is due.
CREATE FUNCTION {schema}.alike(q int4, since int8, now int8, most int4) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT min(x.priority) = max(x.priority) AND max(x.flags & 12) = 0 FROM (
		(SELECT t.priority, t.flags FROM {schema}.tasks t
		WHERE t.line = q * 16 + 6 AND t.sort > since AND t.sort <= now ORDER BY t.sort, t.turn LIMIT most)
		UNION ALL
		(SELECT t.priority, t.flags FROM {schema}.tasks t
		WHERE t.line = q * 16 + 7 AND t.sort > since AND t.sort <= now ORDER BY t.sort, t.turn LIMIT most)
	) x);
END $$;

-- due locks up to most tasks that are due since a moment, the earliest first, and gives
-- their places, the states they are in and the bytes of their records.
CREATE FUNCTION {schema}.due(q int4, since int8, now int8, most int4, OUT cs tid[], OUT was int4[], OUT used int8)
LANGUAGE plpgsql AS $$
BEGIN
	WITH a AS MATERIALIZED (
		SELECT t.ctid AS c, t.sort, t.turn, 6 AS state, octet_length(t.record) AS size FROM {schema}.tasks t
		WHERE t.line = q * 16 + 6 AND t.sort > since AND t.sort <= now
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	), b AS MATERIALIZED (
		SELECT t.ctid AS c, t.sort, t.turn, 7 AS state, octet_length(t.record) AS size FROM {schema}.tasks t
		WHERE t.line = q * 16 + 7 AND t.sort > since AND t.sort <= now
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	)
	SELECT coalesce(array_agg(x.c), '{}'), coalesce(array_agg(x.state), '{}'), coalesce(sum(x.size), 0)
	INTO cs, was, used FROM (
		SELECT * FROM (SELECT * FROM a UNION ALL SELECT * FROM b) y ORDER BY y.sort, y.turn LIMIT most
	) x;
END $$;

-- fitting gives the first of some tasks, as many as have room for their records, and one
-- at least where one is needed; their bytes, and the place of the last in its order.
CREATE FUNCTION {schema}.fitting(places tid[], room int8, needed bool, OUT cs tid[], OUT used int8, OUT last int8)
LANGUAGE plpgsql AS $$
BEGIN
	SELECT coalesce(array_agg(x.c ORDER BY x.n), '{}'), coalesce(sum(x.size), 0), coalesce(max(x.sort), 0)
	INTO cs, used, last FROM (
		SELECT k.c, k.n, t.sort, octet_length(t.record) AS size,
			sum(octet_length(t.record)) OVER (ORDER BY k.n ROWS UNBOUNDED PRECEDING) AS total
		FROM unnest(places) WITH ORDINALITY AS k (c, n) JOIN {schema}.tasks t ON t.ctid = k.c
	) x WHERE x.total <= room OR needed AND x.n = 1;
END $$;

-- behind reports whether a queue needs maintenance: since a moment a lease expired, or
-- something is kept no longer.
CREATE FUNCTION {schema}.behind(q int4, since int8, now int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[q * 16 + 4, q * 16 + 5])
			AND t.sort > since AND t.sort <= now)
		OR EXISTS (SELECT FROM {schema}.ended e WHERE e.line = ANY (ARRAY[q * 16 + 10, q * 16 + 11, q * 16 + 12])
			AND e.expires > since AND e.expires <= now)
		OR EXISTS (SELECT FROM {schema}.keys k WHERE k.queue + 0 = q AND k.until > 0
			AND k.until > since AND k.until <= now);
END $$;

-- enter begins a step that the client decides: it tells the time, admits calls and reserves n
-- versions.
CREATE FUNCTION {schema}.enter(lanes bytea[], opens int8[], seqs int8[], v "char", n int8,
	OUT now int8, OUT base int8, OUT admitted bytea[]) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '2s' AS $$
BEGIN
	now := {schema}.told();
	base := {schema}.stamp(now, n);
	IF cardinality(lanes) > 0 THEN
		admitted := ARRAY(SELECT {schema}.admit(lanes, opens, seqs,
			array_fill(base, ARRAY[cardinality(lanes)]), v, now));
	END IF;
END $$;

-- load reads tasks by their refs and locks the first of them; it waits for no lock unless
-- asked to. What it does not lock, or another step has locked, is given as it was before
-- that step, held false.
CREATE FUNCTION {schema}.load(queues int4[], ids bytea[], locks int4, wait bool) RETURNS TABLE (
	o_n int4, o_held bool, o_ended bool, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2,
	o_priority int2, o_lease bytea, o_past bytea, o_record bytea, o_at int8, o_attempts bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '2s' AS $$
DECLARE
	q int4;
	i bytea;
	have bool[] := array_fill(false, ARRAY[cardinality(queues)]);
BEGIN
	IF wait THEN
		FOR n IN 1..locks LOOP
			PERFORM FROM {schema}.tasks t WHERE t.queue = queues[n] AND t.id = ids[n] FOR UPDATE;
			PERFORM FROM {schema}.ended t WHERE t.queue = queues[n] AND t.id = ids[n] FOR UPDATE;
		END LOOP;
	END IF;
	FOR o_n, o_held, o_ended, o_sort, o_turn, o_version, o_state, o_flags, o_priority, o_lease, o_past, o_record,
			o_at, o_attempts IN
		SELECT u.n, true, false, t.sort, t.turn, t.version, t.line & 15, t.flags, t.priority, t.lease, t.past, t.record,
			0, t.attempts
		FROM unnest(queues[:locks], ids[:locks]) WITH ORDINALITY AS u (queue, id, n), LATERAL (
			SELECT t.*, (CASE WHEN t.flags & 16 > 0 THEN
				(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END) AS attempts
			FROM {schema}.tasks t WHERE t.queue = u.queue AND t.id = u.id FOR UPDATE OF t SKIP LOCKED
		) t
	LOOP
		have[o_n] := true;
		RETURN NEXT;
	END LOOP;
	FOR n IN 1..cardinality(queues) LOOP
		CONTINUE WHEN have[n];
		q := queues[n];
		i := ids[n];
		IF n <= locks THEN
			RETURN QUERY
			SELECT n, true, true, t.expires, 0::int8, t.version, (t.line & 15)::int2, t.flags, t.priority, ''::bytea, t.past,
				t.record, t.at, (CASE WHEN t.flags & 16 > 0 THEN
					(SELECT x.attempts FROM {schema}.sides x WHERE x.queue = t.queue AND x.id = t.id) END)
			FROM {schema}.ended t WHERE t.queue = q AND t.id = i FOR UPDATE SKIP LOCKED;
			CONTINUE WHEN FOUND;
		END IF;
		-- Not to be locked, locked by another, or not there. It may pass from one table to the
		-- other between these looks: the last one finds what was requeued behind the first.
		RETURN QUERY
		SELECT n, false, false, t.sort, t.turn, t.version, (t.line & 15)::int2, t.flags, t.priority, t.lease, t.past,
			t.record, 0::int8, NULL::bytea
		FROM {schema}.tasks t WHERE t.queue = q AND t.id = i;
		CONTINUE WHEN FOUND;
		RETURN QUERY
		SELECT n, false, true, t.expires, 0::int8, t.version, (t.line & 15)::int2, t.flags, t.priority, ''::bytea, t.past,
			t.record, t.at, NULL::bytea
		FROM {schema}.ended t WHERE t.queue = q AND t.id = i;
		CONTINUE WHEN FOUND;
		RETURN QUERY
		SELECT n, false, false, t.sort, t.turn, t.version, (t.line & 15)::int2, t.flags, t.priority, t.lease, t.past,
			t.record, 0::int8, NULL::bytea
		FROM {schema}.tasks t WHERE t.queue = q AND t.id = i;
	END LOOP;
END $$;

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
		FROM {schema}.tasks t WHERE t.line = q * 16 + s AND t.sort <= now
		ORDER BY t.sort LIMIT most FOR UPDATE SKIP LOCKED;
	END LOOP;
END $$;

-- found gives who holds unique keys.
CREATE FUNCTION {schema}.found(queues int4[], wanted text[]) RETURNS TABLE (
	o_n int4, o_id bytea, o_until int8
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	RETURN QUERY
	SELECT u.n::int4, k.id, k.until
	FROM unnest(queues, wanted) WITH ORDINALITY AS u (queue, key, n), LATERAL (
		SELECT x.id, x.until FROM {schema}.keys x WHERE x.queue = u.queue AND x.key = u.key OFFSET 0
	) k;
END $$;

-- drop deletes tasks that load has locked.
CREATE FUNCTION {schema}.drop(queues int4[], ids bytea[], kept bool) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	IF kept THEN
		DELETE FROM {schema}.ended t USING (
			SELECT (SELECT x.ctid FROM {schema}.ended x WHERE x.queue = u.queue AND x.id = u.id) AS c
			FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
		) u WHERE t.ctid = u.c;
	ELSE
		DELETE FROM {schema}.tasks t USING (
			SELECT (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
			FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
		) u WHERE t.ctid = u.c;
	END IF;
END $$;

-- put rewrites tasks that load has locked; an empty record leaves the record.
CREATE FUNCTION {schema}.put(
	queues int4[], ids bytea[], sorts int8[], turns int8[], versions int8[], states int2[], marks int2[],
	priorities int2[], leases bytea[], pasts bytea[], records bytea[]
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.tasks t
	SET sort = u.sort, turn = u.turn, version = u.version, line = u.queue * 16 + u.state, flags = u.mark, priority = u.priority,
		lease = u.lease, past = u.past, record = CASE WHEN u.record = '' THEN t.record ELSE u.record END
	FROM (
		SELECT u.*, (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, sorts, turns, versions, states, marks, priorities, leases, pasts, records)
			AS u (queue, id, sort, turn, version, state, mark, priority, lease, past, record) OFFSET 0
	) u WHERE t.ctid = u.c;
END $$;

-- make adds tasks. An id that is taken, among what has ended too, is a unique_violation; in
-- a transaction of the application's that keeps its first snapshot, where it was taken
-- since, it is a serialization_failure.
CREATE FUNCTION {schema}.make(
	queues int4[], ids bytea[], sorts int8[], turns int8[], versions int8[], states int2[], marks int2[],
	priorities int2[], pasts bytea[], records bytea[], patient bool
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		PERFORM {schema}.unseen(queues, ids);
	END IF;
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	SELECT u.sort, u.turn, u.version, u.queue, u.queue * 16 + u.state, u.mark, u.priority, u.id, '', u.past, u.record
	FROM unnest(queues, ids, sorts, turns, versions, states, marks, priorities, pasts, records)
		AS u (queue, id, sort, turn, version, state, mark, priority, past, record);
	PERFORM FROM unnest(queues, ids) AS u (queue, id)
	WHERE (SELECT true FROM {schema}.ended e WHERE e.queue = u.queue AND e.id = u.id) LIMIT 1;
	IF FOUND THEN
		RAISE unique_violation USING MESSAGE = 'midge: the id is taken by a task that has ended';
	END IF;
END $$;

-- unseen fails to serialize where an id was taken after this transaction's snapshot. No
-- query shows that, but an insert does that conflicts: one into each table is tried, and
-- taken back.
CREATE FUNCTION {schema}.unseen(queues int4[], ids bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	SELECT 0, 0, 0, u.queue, u.queue * 16, 0, 0, u.id, '', '', '' FROM unnest(queues, ids) AS u (queue, id)
	ON CONFLICT DO NOTHING;
	INSERT INTO {schema}.ended (expires, version, at, queue, line, flags, priority, id, past, record)
	SELECT 0, 0, 0, u.queue, u.queue * 16, 0, 0, u.id, '', '' FROM unnest(queues, ids) AS u (queue, id)
	ON CONFLICT DO NOTHING;
	DELETE FROM {schema}.tasks t USING (
		SELECT (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
	) u WHERE t.ctid = u.c AND t.version = 0;
	DELETE FROM {schema}.ended t USING (
		SELECT (SELECT x.ctid FROM {schema}.ended x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
	) u WHERE t.ctid = u.c AND t.version = 0;
END $$;

-- take takes unique keys. One that is held is a unique_violation.
CREATE FUNCTION {schema}.take(queues int4[], wanted text[], ids bytea[], untils int8[], now int8, patient bool)
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET lock_timeout = '50ms' AS $$
DECLARE
	n int8;
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	INSERT INTO {schema}.keys AS k (queue, key, id, until)
	SELECT u.queue, u.key, u.id, u.until FROM unnest(queues, wanted, ids, untils) AS u (queue, key, id, until)
	ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, until = excluded.until
	WHERE k.until > 0 AND k.until <= now;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n <> cardinality(queues) THEN
		RAISE unique_violation USING MESSAGE = 'midge: a unique key was taken meanwhile';
	END IF;
END $$;

-- free releases unique keys that these tasks hold for their life.
CREATE FUNCTION {schema}.free(queues int4[], wanted text[], ids bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.keys k USING (
		SELECT u.id, (SELECT x.ctid FROM {schema}.keys x WHERE x.queue = u.queue AND x.key = u.key) AS c
		FROM unnest(queues, wanted, ids) AS u (queue, key, id) OFFSET 0
	) u WHERE k.ctid = u.c AND k.id = u.id AND k.until = 0;
END $$;

-- side writes beside tasks what few have. masks say which columns: 1 attempts, 2 stack,
-- 4 result, 8 progress, 16 checkpoint.
CREATE FUNCTION {schema}.side(
	queues int4[], ids bytea[], masks int2[], histories bytea[], stacks bytea[], results bytea[],
	progresses bytea[], checkpoints bytea[]
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	INSERT INTO {schema}.sides AS s (queue, id, attempts, stack, result, progress, checkpoint)
	SELECT u.queue, u.id, u.attempts, u.stack, u.result, u.progress, u.checkpoint
	FROM unnest(queues, ids, histories, stacks, results, progresses, checkpoints)
		AS u (queue, id, attempts, stack, result, progress, checkpoint)
	ON CONFLICT (queue, id) DO NOTHING;
	UPDATE {schema}.sides s SET
		attempts = CASE WHEN u.mask & 1 > 0 THEN u.attempts ELSE s.attempts END,
		stack = CASE WHEN u.mask & 2 > 0 THEN u.stack ELSE s.stack END,
		result = CASE WHEN u.mask & 4 > 0 THEN u.result ELSE s.result END,
		progress = CASE WHEN u.mask & 8 > 0 THEN u.progress ELSE s.progress END,
		checkpoint = CASE WHEN u.mask & 16 > 0 THEN u.checkpoint ELSE s.checkpoint END
	FROM (
		SELECT u.*, (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, masks, histories, stacks, results, progresses, checkpoints)
			AS u (queue, id, mask, attempts, stack, result, progress, checkpoint) OFFSET 0
	) u WHERE s.ctid = u.c;
END $$;

-- forget deletes what stands beside tasks.
CREATE FUNCTION {schema}.forget(queues int4[], ids bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.sides s USING (
		SELECT (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids) AS u (queue, id) OFFSET 0
	) u WHERE s.ctid = u.c;
END $$;

-- remember keeps the outcomes of calls that were admitted.
CREATE FUNCTION {schema}.remember(lanes bytea[], outcomes bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.lanes l SET outcome = u.outcome FROM (
		SELECT u.outcome, (SELECT x.ctid FROM {schema}.lanes x WHERE x.lane = u.lane) AS c
		FROM unnest(lanes, outcomes) AS u (lane, outcome) OFFSET 0
	) u WHERE l.ctid = u.c;
END $$;

-- trim deletes up to most of what a queue keeps no longer, and up to most of its dead
-- tasks beyond dead_max, the oldest first. It gives how many tasks went. It reads the deltas,
-- which have no index: what that seems to cost would have the server compile the plan.
CREATE FUNCTION {schema}.trim(q int4, now int8, most int4, dead_max int8) RETURNS int4 LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	n int4;
	gone int4 := 0;
	over int8;
BEGIN
	FOR s IN 10..12 LOOP
		over := 0;
		IF s = 12 THEN
			SELECT {schema}.dead(q) - dead_max INTO over;
		END IF;
		WITH a AS MATERIALIZED (
			SELECT k.c FROM (
				SELECT t.ctid AS c, t.expires, row_number() OVER (ORDER BY t.expires) AS n FROM (
					SELECT e.ctid, e.expires FROM {schema}.ended e WHERE e.line = q * 16 + s
					ORDER BY e.expires LIMIT most FOR UPDATE SKIP LOCKED
				) t
			) k WHERE k.expires <= now OR k.n <= over
		), d AS (
			DELETE FROM {schema}.ended e USING a WHERE e.ctid = a.c RETURNING e.queue, e.id, e.flags
		), f AS (
			DELETE FROM {schema}.sides s USING (
				SELECT (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = d.queue AND x.id = d.id) AS c
				FROM d WHERE d.flags & 16 > 0 OFFSET 0
			) u WHERE s.ctid = u.c
		)
		SELECT count(*) INTO n FROM d;
		IF n > 0 THEN
			INSERT INTO {schema}.deltas (queue, completed, cancelled, dead) VALUES (q,
				CASE WHEN s = 10 THEN -n ELSE 0 END, CASE WHEN s = 11 THEN -n ELSE 0 END,
				CASE WHEN s = 12 THEN -n ELSE 0 END);
		END IF;
		gone := gone + n;
	END LOOP;
	DELETE FROM {schema}.keys k WHERE k.ctid = ANY (ARRAY(
		SELECT w.ctid FROM {schema}.keys w WHERE w.queue + 0 = q AND w.until > 0 AND w.until <= now
		ORDER BY w.until LIMIT most FOR UPDATE SKIP LOCKED));
	RETURN gone;
END $$;

-- dead counts a queue's dead tasks.
CREATE FUNCTION {schema}.dead(q int4) RETURNS int8 LANGUAGE sql AS $$
	SELECT coalesce((SELECT x.dead FROM {schema}.queues x WHERE x.queue = q), 0)
		+ coalesce((SELECT sum(d.dead) FROM {schema}.deltas d WHERE d.queue = q), 0)
$$;

-- fold adds up to most deltas to their queues. One folds at a time; another does nothing
-- and gives 0, else it gives how many there were.
CREATE FUNCTION {schema}.fold(most int4) RETURNS int4 LANGUAGE plpgsql SET jit = off AS $$
DECLARE
	n int4;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtext('{schema}.fold')) THEN
		RETURN 0;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	WITH d AS (
		DELETE FROM {schema}.deltas WHERE ctid = ANY (ARRAY(
			SELECT x.ctid FROM {schema}.deltas x LIMIT most FOR UPDATE SKIP LOCKED))
		RETURNING *
	), s AS MATERIALIZED (
		SELECT queue, count(*) AS n, sum(waiting) AS waiting, sum(pending) AS pending,
			sum(scheduled) AS scheduled, sum(retry) AS retry, sum(completed) AS completed,
			sum(cancelled) AS cancelled, sum(dead) AS dead, sum(cursors) AS cursors, sum(damaged) AS damaged,
			sum(t_enqueued) AS t_enqueued, sum(t_requeued) AS t_requeued, sum(t_completed) AS t_completed,
			sum(t_dead) AS t_dead, sum(t_cancelled) AS t_cancelled, sum(t_deleted) AS t_deleted,
			sum(t_failed) AS t_failed, sum(t_crashed) AS t_crashed
		FROM d GROUP BY queue ORDER BY queue
	), u AS (
		UPDATE {schema}.queues q SET
			hidden = false, touched = {schema}.told(),
			waiting = q.waiting + s.waiting, pending = q.pending + s.pending,
			scheduled = q.scheduled + s.scheduled, retry = q.retry + s.retry,
			completed = q.completed + s.completed, cancelled = q.cancelled + s.cancelled,
			dead = q.dead + s.dead, cursors = q.cursors + s.cursors, damaged = q.damaged + s.damaged,
			t_enqueued = q.t_enqueued + s.t_enqueued, t_requeued = q.t_requeued + s.t_requeued,
			t_completed = q.t_completed + s.t_completed, t_dead = q.t_dead + s.t_dead,
			t_cancelled = q.t_cancelled + s.t_cancelled, t_deleted = q.t_deleted + s.t_deleted,
			t_failed = q.t_failed + s.t_failed, t_crashed = q.t_crashed + s.t_crashed
		FROM s WHERE q.queue = s.queue
	)
	SELECT coalesce(sum(s.n), 0) INTO n FROM s;
	RETURN n;
END $$;

-- arrive sees to it that ids under which tasks that have ended come from another queue are
-- free among the tasks, or it is a unique_violation; who inserts one meanwhile waits.
CREATE FUNCTION {schema}.arrive(queues int4[], ids bytea[], patient bool) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	SELECT 0, 0, 0, u.queue, u.queue * 16, 0, 0, u.id, '', '', '' FROM unnest(queues, ids) AS u (queue, id);
	PERFORM {schema}.drop(queues, ids, false);
END $$;

-- keep adds tasks that have ended.
CREATE FUNCTION {schema}.keep(
	queues int4[], ids bytea[], sorts int8[], versions int8[], states int2[], marks int2[],
	priorities int2[], pasts bytea[], records bytea[], ats int8[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.ended (expires, version, at, queue, line, flags, priority, id, past, record)
	SELECT u.sort, u.version, u.at, u.queue, u.queue * 16 + u.state, u.mark, u.priority, u.id, u.past, u.record
	FROM unnest(queues, ids, sorts, versions, states, marks, priorities, pasts, records, ats)
		AS u (queue, id, sort, version, state, mark, priority, past, record, at);
END $$;

-- shift moves what stands beside tasks to other queues.
CREATE FUNCTION {schema}.shift(queues int4[], ids bytea[], targets int4[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.sides s SET queue = u.target FROM (
		SELECT u.target, (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, targets) AS u (queue, id, target) OFFSET 0
	) u WHERE s.ctid = u.c;
END $$;

-- apart sets a record that cannot be read apart, and counts it. One in a line of another queue
-- than its own is looked for along the lines.
CREATE FUNCTION {schema}.apart(q int4, i bytea) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	c tid;
	was int2;
BEGIN
	SELECT t.ctid, t.line & 15 INTO c, was FROM {schema}.tasks t
	WHERE t.queue = q AND t.id = i AND t.line > q * 16 AND t.line < q * 16 + 9 FOR UPDATE;
	IF NOT FOUND THEN
		SELECT t.ctid, t.line & 15 INTO c, was FROM {schema}.tasks t
		WHERE t.line > q * 16 AND t.line < q * 16 + 9 AND t.id = i AND t.queue <> q LIMIT 1 FOR UPDATE;
	END IF;
	IF FOUND THEN
		UPDATE {schema}.tasks t SET line = q * 16 + 9, sort = {schema}.told() WHERE t.ctid = c;
		INSERT INTO {schema}.deltas (queue, waiting, pending, scheduled, retry, cursors, damaged, t_deleted)
		VALUES (q, -(was IN (1, 2, 3))::int4, -(was IN (4, 5))::int4, -(was = 6)::int4, -(was = 7)::int4,
			-(was = 8)::int4, 1, (was < 8)::int4);
	END IF;
END $$;

-- configure replaces the settings of a queue, or removes it. It reports false where the
-- queue to be removed holds a record. It passes over all deltas, which have no index; a scan
-- that is off seems so dear to the planner that it would compile the plan. A removal keeps fold away first: that locks deltas and
-- then the queue, and this the other way round.
CREATE FUNCTION {schema}.configure(p_name text, p_paused bool, p_for int8, p_remove bool, OUT done bool, OUT number int4)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
	done := true;
	IF p_remove THEN
		PERFORM pg_advisory_xact_lock(hashtext('{schema}.fold'));
	END IF;
	SELECT q.queue INTO number FROM {schema}.queues q WHERE q.name = p_name FOR UPDATE;
	IF NOT FOUND THEN
		IF p_remove OR NOT p_paused THEN
			RETURN; -- no settings, and no queue that could have had some
		END IF;
		INSERT INTO {schema}.queues (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING;
		SELECT q.queue INTO number FROM {schema}.queues q WHERE q.name = p_name FOR UPDATE;
	END IF;
	IF p_remove THEN
		-- One statement, which sees one moment: what is inserted meanwhile stays whole.
		WITH e AS MATERIALIZED (
			SELECT NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = number AND t.line & 15 < 9)
				AND NOT EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = number) AS empty
		), damaged AS (
			DELETE FROM {schema}.tasks t USING e WHERE e.empty AND t.queue = number AND t.line & 15 = 9
		), beside AS (
			DELETE FROM {schema}.sides s USING e WHERE e.empty AND s.queue = number
		), held AS ( -- a key that is taken meanwhile is at another place
			DELETE FROM {schema}.keys k USING e, (SELECT x.ctid AS c FROM {schema}.keys x WHERE x.queue = number) x
			WHERE e.empty AND k.ctid = x.c
		), counted AS (
			DELETE FROM {schema}.deltas d USING e WHERE e.empty AND d.queue = number
		)
		UPDATE {schema}.queues q SET hidden = true, paused = false, paused_until = 0, touched = {schema}.told(),
			waiting = 0, pending = 0, scheduled = 0, retry = 0, completed = 0, cancelled = 0, dead = 0, cursors = 0,
			damaged = 0, t_enqueued = 0, t_requeued = 0, t_completed = 0, t_dead = 0, t_cancelled = 0,
			t_deleted = 0, t_failed = 0, t_crashed = 0
		FROM e WHERE e.empty AND q.queue = number;
		done := FOUND;
		RETURN;
	END IF;
	UPDATE {schema}.queues q SET hidden = q.hidden AND NOT p_paused, paused = p_paused, touched = {schema}.told(),
		paused_until = CASE WHEN p_for > 0 THEN {schema}.told() + p_for ELSE 0 END
	WHERE q.queue = number;
END $$;

-- stats gives the sizes and totals of queues.
CREATE FUNCTION {schema}.stats(names text[]) RETURNS TABLE (
	o_name text, o_paused bool, o_until int8, o_values int8[]
) LANGUAGE sql STABLE AS $$
	SELECT q.name, q.paused AND (q.paused_until = 0 OR q.paused_until > {schema}.told()), q.paused_until, ARRAY[
		q.waiting + coalesce(d.waiting, 0), q.pending + coalesce(d.pending, 0),
		q.scheduled + coalesce(d.scheduled, 0), q.retry + coalesce(d.retry, 0),
		q.completed + coalesce(d.completed, 0), q.cancelled + coalesce(d.cancelled, 0),
		q.dead + coalesce(d.dead, 0), q.cursors + coalesce(d.cursors, 0), q.damaged + coalesce(d.damaged, 0),
		q.t_enqueued + coalesce(d.t_enqueued, 0), q.t_requeued + coalesce(d.t_requeued, 0),
		q.t_completed + coalesce(d.t_completed, 0), q.t_dead + coalesce(d.t_dead, 0),
		q.t_cancelled + coalesce(d.t_cancelled, 0), q.t_deleted + coalesce(d.t_deleted, 0),
		q.t_failed + coalesce(d.t_failed, 0), q.t_crashed + coalesce(d.t_crashed, 0)]
	FROM {schema}.queues q LEFT JOIN (
		SELECT x.queue, sum(x.waiting) AS waiting, sum(x.pending) AS pending, sum(x.scheduled) AS scheduled,
			sum(x.retry) AS retry, sum(x.completed) AS completed, sum(x.cancelled) AS cancelled,
			sum(x.dead) AS dead, sum(x.cursors) AS cursors, sum(x.damaged) AS damaged,
			sum(x.t_enqueued) AS t_enqueued, sum(x.t_requeued) AS t_requeued, sum(x.t_completed) AS t_completed,
			sum(x.t_dead) AS t_dead, sum(x.t_cancelled) AS t_cancelled, sum(x.t_deleted) AS t_deleted,
			sum(x.t_failed) AS t_failed, sum(x.t_crashed) AS t_crashed
		FROM {schema}.deltas x GROUP BY x.queue
	) d ON d.queue = q.queue
	WHERE q.name = ANY (names)
$$;

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

-- abandon hides some queues that were empty, without settings and untouched for long, and
-- deletes some rows that have been hidden for longer.
CREATE FUNCTION {schema}.abandon(idle int8, over int8) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
	now int8 := {schema}.come({schema}.told());
BEGIN
	UPDATE {schema}.queues SET hidden = true, touched = {schema}.told() WHERE queue = ANY (ARRAY(
		SELECT q.queue FROM {schema}.queues q
		WHERE NOT q.hidden AND q.touched < now - idle
			AND (NOT q.paused OR q.paused_until BETWEEN 1 AND now) AND {schema}.unused(q.queue)
		LIMIT 100 FOR UPDATE SKIP LOCKED));
	DELETE FROM {schema}.queues WHERE queue = ANY (ARRAY(
		SELECT q.queue FROM {schema}.queues q
		WHERE q.hidden AND q.touched < now - over AND {schema}.unused(q.queue)
		LIMIT 100 FOR UPDATE SKIP LOCKED));
END $$;

-- unused reports whether a queue holds nothing at all.
CREATE FUNCTION {schema}.unused(q int4) RETURNS bool LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
	RETURN NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = q)
		AND NOT EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = q)
		AND NOT EXISTS (SELECT FROM {schema}.keys k WHERE k.queue = q)
		AND NOT EXISTS (SELECT FROM {schema}.deltas d WHERE d.queue = q);
END $$;

-- read gives one task with all that stands beside it.
CREATE FUNCTION {schema}.read(p_name text, p_id bytea) RETURNS TABLE (
	o_ended bool, o_sort int8, o_version int8, o_state int2, o_flags int2, o_priority int2, o_lease bytea,
	o_past bytea, o_record bytea, o_at int8,
	o_attempts bytea, o_stack bytea, o_result bytea, o_progress bytea, o_checkpoint bytea
) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	q int4 := (SELECT k.queue FROM {schema}.queues k WHERE k.name = p_name);
	s record;
BEGIN
	SELECT k.* INTO s FROM {schema}.sides k WHERE k.queue = q AND k.id = p_id;
	RETURN QUERY
	SELECT false, t.sort, t.version, (t.line & 15)::int2, t.flags, t.priority, t.lease, t.past, t.record,
		0::int8, s.attempts, s.stack, s.result, s.progress, s.checkpoint
	FROM {schema}.tasks t WHERE t.queue = q AND t.id = p_id;
	IF NOT FOUND THEN
		RETURN QUERY
		SELECT true, e.expires, e.version, (e.line & 15)::int2, e.flags, e.priority, ''::bytea, e.past, e.record,
			e.at, s.attempts, s.stack, s.result, s.progress, s.checkpoint
		FROM {schema}.ended e WHERE e.queue = q AND e.id = p_id;
	END IF;
END $$;

-- sweep forgets some lanes that were opened before a moment.
CREATE FUNCTION {schema}.sweep(before int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	DELETE FROM {schema}.lanes WHERE ctid = ANY (ARRAY(
		SELECT l.ctid FROM {schema}.lanes l WHERE l.opened < before
		ORDER BY l.opened LIMIT 500 FOR UPDATE SKIP LOCKED));
END $$;
