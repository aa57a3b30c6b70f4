-- promote moves up to most due tasks of each line of a queue to the tail of the waiting tasks, in the
-- order in which they were due, and returns how many it moved (promoted), and how many partitions these
-- tasks have, of which each may have got a turn from now on (turns).
CREATE FUNCTION {schema}.promote(q int4, now int8, come int8, most int4, OUT promoted int4, OUT turns int4)
LANGUAGE plpgsql AS $$
DECLARE
	tail int8 := {schema}.stamp(now, 2 * most + 1);
	cs tid[];
	was int4[];
	places int8[];
	subs text[];
BEGIN
	turns := 0;
	WITH due AS MATERIALIZED (
		SELECT t.* FROM unnest(ARRAY[{states.due}]) AS s (state), LATERAL (
			SELECT x.ctid AS c, x.sort, x.turn, s.state AS was, x.partition AS sub FROM {schema}.tasks x
			WHERE x.line = {schema}.line(q, s.state) AND x.sort <= come AND x.flags & {newer} = 0
			ORDER BY x.sort, x.turn LIMIT most FOR UPDATE OF x SKIP LOCKED
		) t
	), ranked AS MATERIALIZED (
		SELECT d.c, d.was, d.sub, tail + row_number() OVER (ORDER BY d.sort, d.turn) AS place FROM due d
	), moved AS (
		UPDATE {schema}.tasks t
		SET line = {schema}.line(q, CASE WHEN t.flags & 8 > 0 THEN {state.suspect} WHEN t.flags & 4 > 0 THEN {state.prompt}
				ELSE {state.waiting} END),
			sort = {schema}.place(t.priority, k.place)
		FROM ranked k WHERE t.ctid = k.c AND k.sub = ''
		RETURNING k.was, {schema}.state(t.line) AS state
	), kept AS MATERIALIZED (
		SELECT m.n, {schema}.passed(q, m.n, m.was, m.state, 0)
		FROM (SELECT x.was, x.state, count(*)::int4 AS n FROM moved x GROUP BY x.was, x.state) m
	)
	SELECT (SELECT coalesce(sum(k.n), 0) FROM kept k), array_agg(r.c), array_agg(r.was), array_agg(r.place),
		array_agg(r.sub)
	INTO promoted, cs, was, places, subs FROM ranked r WHERE r.sub <> '';
	IF cs IS NOT NULL THEN
		BEGIN
			turns := {schema}.rejoin(q, now, tail, cs, was, places, subs);
			promoted := promoted + cardinality(cs);
		EXCEPTION WHEN lock_not_available OR serialization_failure THEN -- a later claim promotes these
		END;
	END IF;
END $$;
