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
		WHERE l.lane = p_lane AND l.seq < p_seq
			AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
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
					WHERE t.line = number * 16 + 6 AND t.sort <= come AND t.flags & {newer} = 0
					ORDER BY t.sort, t.turn LIMIT p_batch FOR UPDATE SKIP LOCKED
				), b AS MATERIALIZED (
					SELECT t.ctid AS c, t.sort AS due, t.turn, t.line & 15 AS was FROM {schema}.tasks t
					WHERE t.line = number * 16 + 7 AND t.sort <= come AND t.flags & {newer} = 0
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
					WHERE t.line = number * 16 + 8 AND t.sort <= come AND t.flags & {newer} = 0
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
							FROM {schema}.tasks t
							WHERE t.line = number * 16 + 1 AND t.sort < p_lows[i] AND t.flags & {newer} = 0
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
							FROM {schema}.tasks t
							WHERE t.line = number * 16 + 1 AND t.sort >= p_froms[i] AND t.flags & {newer} = 0
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
							FROM {schema}.tasks t WHERE t.line = number * 16 + 1 AND t.flags & {newer} = 0
							ORDER BY t.sort LIMIT take FOR UPDATE SKIP LOCKED
						), b AS MATERIALIZED (
							SELECT t.ctid AS c, t.sort, t.line & 15 AS state, octet_length(t.record)::int8 AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 2 AND t.flags & {newer} = 0
							ORDER BY t.sort LIMIT least(take, p_start - done) FOR UPDATE SKIP LOCKED
						), s AS MATERIALIZED (
							SELECT t.ctid AS c, t.sort, t.line & 15 AS state, octet_length(t.record)::int8 AS size
							FROM {schema}.tasks t WHERE t.line = number * 16 + 3 AND t.flags & {newer} = 0
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
