-- turned returns the candidates of a claim from the first partitions of the ring of a queue that have
-- any: the tasks without the flags barred. With free it leaves out tasks that others have locked, and passes over
-- partitions of which others have locked all tasks. It returns
-- at least as many as there are, or most if there are more, and of no partition fewer than a claim can
-- take that serves them in turn. Of the tasks that every claim takes, which have none of the flags 12, it
-- returns as many even if others stand before them. It reads no more than {maxturns} partitions and one,
-- and in each passes over 1,000 tasks at most. It passes over partitions with as many running tasks as
-- their limit admits, and, if the claim starts no task at once and so bars the flag 4, over partitions with a
-- limit of their own. o_left is how many tasks are left of the turn of a partition, 0 if none goes on,
-- o_running counts its running tasks, o_starts are its starts, with its first task, and o_own is its own
-- limit.
--
-- A row without an id and with o_kind '' stands for partitions that are held back by their concurrency. With
-- another o_kind it names a partition that was passed over, after a read of {maxturns} that left out others.
CREATE FUNCTION {schema}.turned(q int4, ring int8, most int4, barred int2, free bool) RETURNS TABLE (
	o_foreign bool, o_state int2, o_kind text, o_id bytea, o_version int8, o_sort int8, o_flags int2, o_size int4,
	o_last bool, o_turn int8, o_left int4, o_partition text, o_running int8, o_starts bytea, o_own text
) LANGUAGE plpgsql AS $$
DECLARE
	concurrency int8 := {schema}.share(q, '', 1); -- of the partitions without a limit of their own
	heavy int8 := greatest({schema}.share(q, '', 4), 1); -- their weight
	numbers int8[];
	weights int8[];
	running int8[];
	final int8; -- the last turn that this reads
	held bool;
	others bool;
	subs text[];
	cs tid[];
	share int8; -- how many turns each partition has
	cut bool;
BEGIN
	SELECT coalesce(array_agg(s.line), '{}'), array_agg(s.weight), array_agg(s.running), max(s.turn)
	INTO numbers, weights, running, final FROM (
		SELECT r.line, r.running, r.turn,
			CASE WHEN r.own = '' THEN heavy ELSE greatest({schema}.share(q, r.own, 4), 1) END AS weight
		FROM (
			SELECT k.*, CASE WHEN k.bound = 0 THEN 0 ELSE (SELECT count(*) FROM (
				SELECT FROM {schema}.tasks t WHERE t.queue + 0 = q AND t.partition = k.sub AND t.flags & 32 > 0
				LIMIT k.bound) x) END AS running
			FROM (
				SELECT z.line, z.sub, z.turn, z.own,
					CASE WHEN z.own = '' THEN concurrency ELSE {schema}.share(q, z.own, 1) END AS bound
				FROM {schema}.lines z WHERE z.queue + 0 = q AND z.state = {state.keyed} AND z.sort = 0
					AND z.turn >= ring AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = z.line OFFSET 0)
				ORDER BY z.sort, z.turn LIMIT {maxturns} + 1
			) k
		) r WHERE (r.bound = 0 OR r.running < r.bound) AND (barred & 4 = 0 OR r.own IN ('', '0 0 0')) AND CASE
				WHEN free THEN ({schema}.heads(r.line, 1, barred, NULL, '{}', 999, true))[1] IS NOT NULL
				ELSE EXISTS (
					SELECT FROM (
						SELECT t.flags FROM {schema}.tasks t WHERE t.line = r.line AND t.flags & {newer} = 0 ORDER BY t.sort LIMIT 1000
					) x WHERE x.flags & barred = 0
				)
			END LIMIT least(most, {maxturns} + 1)
	) s;
	IF cardinality(numbers) < most THEN
		final := 9223372036854775807;
	END IF;
	IF cardinality(numbers) < least(most, {maxturns} + 1) OR concurrency > 0 OR EXISTS (
		SELECT FROM {schema}.lines k WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.own <> ''
	) THEN
		SELECT bool_or(r.nth > {maxturns}), bool_or(r.held), array_agg(r.sub ORDER BY r.turn)
			FILTER (WHERE NOT r.chosen AND r.nth <= {maxturns})
		INTO others, held, subs FROM (
			SELECT k.sub, k.turn, row_number() OVER () AS nth, k.line = ANY (numbers) AS chosen,
				k.bound > 0 AND k.line <> ALL (numbers) AND k.bound <= (SELECT count(*) FROM (
					SELECT FROM {schema}.tasks t WHERE t.queue + 0 = q AND t.partition = k.sub AND t.flags & 32 > 0
					LIMIT k.bound) x) AS held
			FROM (
				SELECT k.line, k.sub, k.turn, CASE WHEN k.own = '' THEN concurrency ELSE {schema}.share(q, k.own, 1) END AS bound
				FROM {schema}.lines k
				WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort = 0 AND k.turn BETWEEN ring AND final
					AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
				ORDER BY k.sort, k.turn LIMIT {maxturns} + 1
			) k
		) r;
		RETURN QUERY
		SELECT false, {state.keyed}::int2, u.sub, NULL::bytea, 0::int8, 0::int8, 0::int2, 0, false, 0::int8, 0,
			'', 0::int8, ''::bytea, ''
		FROM unnest(CASE WHEN held THEN ARRAY[''] END || CASE WHEN others THEN subs END) AS u (sub);
	END IF;
	IF numbers = '{}' THEN
		RETURN;
	END IF;
	share := (most - 1) / (SELECT sum(u.w) FROM unnest(weights) AS u (w))::int8 + 1;
	LOOP -- until there are enough, or no partition has more
		SELECT array_agg(DISTINCT w.c), bool_or(w.nth >= w.part AND w.got < most) INTO cs, cut
		FROM (
			SELECT x.*, u.part, count(*) OVER (PARTITION BY s.without) AS got
			FROM (
				SELECT v.line, least(share * v.weight, most) AS part FROM unnest(numbers, weights) AS v (line, weight)
			) u, (SELECT barred UNION SELECT 12) AS s (without), LATERAL (
				SELECT y.c, row_number() OVER () AS nth FROM (
					SELECT z.c FROM (
						SELECT t.ctid AS c, t.flags FROM {schema}.tasks t
						WHERE NOT free AND t.line = u.line AND t.flags & {newer} = 0 ORDER BY t.sort LIMIT u.part + 1000
					) z WHERE z.flags & s.without = 0 LIMIT u.part
				) y
				UNION ALL
				SELECT h.c, h.nth FROM unnest({schema}.heads(u.line, u.part, barred, NULL, '{}', 1000, free)) WITH ORDINALITY AS h (c, nth)
				WHERE free AND s.without = barred
			) x
		) w;
		EXIT WHEN cut IS NOT TRUE;
		share := share * 2;
	END LOOP;
	RETURN QUERY
	SELECT t.queue <> q, {state.keyed}::int2, k.sub, t.id, t.version, t.sort, t.flags, octet_length(t.record),
		row_number() OVER (PARTITION BY k.line ORDER BY t.sort) >= least(share * weights[array_position(numbers, k.line)], most), k.turn,
		k.turn_left, k.sub,
		running[array_position(numbers, k.line)],
		CASE WHEN row_number() OVER (PARTITION BY k.line ORDER BY t.sort) = 1 THEN k.starts ELSE '' END, k.own
	FROM unnest(cs) AS c (c), LATERAL (SELECT z.* FROM {schema}.tasks z WHERE z.ctid = c.c OFFSET 0) t,
	LATERAL (SELECT z.* FROM {schema}.lines z WHERE z.line = t.line OFFSET 0) k
	WHERE k.queue = q AND k.state = {state.keyed} AND k.sort = 0 AND t.flags & barred = 0
	ORDER BY t.sort;
END $$;
