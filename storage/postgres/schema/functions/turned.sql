-- turned returns the candidates of a claim from the first partitions of the ring of a queue that have
-- any: those without the flags barred, and with free only those that others have not locked. It returns
-- at least as many as there are, or most if there are more, and of no partition fewer than a claim can
-- take that serves them in turn. Of the tasks that every claim takes, which have none of the flags 12, it
-- returns as many even if others stand before them. It reads no more than {maxturns} partitions and one,
-- and in each passes over 1,000 tasks at most.
CREATE FUNCTION {schema}.turned(q int4, ring int8, most int4, barred int2, free bool) RETURNS TABLE (
	o_foreign bool, o_state int2, o_kind text, o_id bytea, o_version int8, o_sort int8, o_flags int2, o_size int4,
	o_last bool, o_turn int8
) LANGUAGE plpgsql AS $$
DECLARE
	numbers int8[];
	cs tid[];
	share int4;
	cut bool;
BEGIN
	numbers := ARRAY(
		SELECT r.line FROM (
			SELECT k.line FROM {schema}.lines k WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort = 0
				AND k.turn >= ring AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
			ORDER BY k.sort, k.turn LIMIT {maxturns} + 1
		) r WHERE EXISTS (
			SELECT FROM (
				SELECT t.flags FROM {schema}.tasks t WHERE t.line = r.line AND t.flags & {newer} = 0 ORDER BY t.sort LIMIT 1000
			) x WHERE x.flags & barred = 0
		) LIMIT least(most, {maxturns} + 1));
	IF numbers = '{}' THEN
		RETURN;
	END IF;
	share := (most - 1) / cardinality(numbers) + 1;
	LOOP -- until there are enough, or no partition has more
		SELECT array_agg(DISTINCT w.c), bool_or(w.nth >= share AND w.got < most) INTO cs, cut
		FROM (
			SELECT x.*, count(*) OVER (PARTITION BY s.without) AS got
			FROM unnest(numbers) AS u (line), (SELECT barred UNION SELECT 12) AS s (without), LATERAL (
				SELECT y.c, row_number() OVER () AS nth FROM (
					SELECT z.c FROM (
						SELECT t.ctid AS c, t.flags FROM {schema}.tasks t
						WHERE NOT free AND t.line = u.line AND t.flags & {newer} = 0 ORDER BY t.sort LIMIT share + 1000
					) z WHERE z.flags & s.without = 0 LIMIT share
				) y
				UNION ALL
				SELECT h.c, h.nth FROM unnest({schema}.heads(u.line, share, free)) WITH ORDINALITY AS h (c, nth)
				WHERE free AND s.without = barred
			) x
		) w;
		EXIT WHEN cut IS NOT TRUE;
		share := share * 2;
	END LOOP;
	RETURN QUERY
	SELECT t.queue <> q, {state.keyed}::int2, k.sub, t.id, t.version, t.sort, t.flags, octet_length(t.record),
		row_number() OVER (PARTITION BY k.line ORDER BY t.sort) >= share, k.turn
	FROM unnest(cs) AS c (c), LATERAL (SELECT z.* FROM {schema}.tasks z WHERE z.ctid = c.c OFFSET 0) t,
	LATERAL (SELECT z.* FROM {schema}.lines z WHERE z.line = t.line OFFSET 0) k
	WHERE k.queue = q AND k.state = {state.keyed} AND k.sort = 0 AND t.flags & barred = 0
	ORDER BY t.sort;
END $$;
