-- rejoin moves due tasks with a partition, which the step has locked, to places in the lines of their
-- partitions (subs), and returns how many partitions there are. New ones get turns behind p_turn, in the
-- order of their tasks.
CREATE FUNCTION {schema}.rejoin(
	q int4, now int8, p_turn int8, cs tid[], was int4[], places int8[], subs text[]
) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	names text[];
	counts int4[];
	turns int8[];
	n int4;
BEGIN
	SELECT array_agg(x.sub ORDER BY x.sub), array_agg(x.n ORDER BY x.sub), array_agg(p_turn + x.nth ORDER BY x.sub)
	INTO names, counts, turns FROM (
		SELECT u.sub, count(*)::int4 AS n, row_number() OVER (ORDER BY min(u.place)) AS nth
		FROM unnest(subs, places) AS u (sub, place) GROUP BY u.sub
	) x;
	n := cardinality(names);
	PERFORM {schema}.joining(array_fill(q, ARRAY[n]), array_fill({state.keyed}::int2, ARRAY[n]), names, counts,
		array_fill(true, ARRAY[n]), turns, now, 0, false);
	n := cardinality(subs);
	UPDATE {schema}.tasks t SET line = u.line, sort = {schema}.place(t.priority, u.place)
	FROM unnest(cs, places, {schema}.numbers(array_fill(q, ARRAY[n]), array_fill({state.keyed}::int2, ARRAY[n]), subs))
		AS u (c, place, line) WHERE t.ctid = u.c;
	PERFORM {schema}.passed(q, m.n, m.was, {state.keyed}, 0)
	FROM (SELECT u.was, count(*)::int4 AS n FROM unnest(was) AS u (was) GROUP BY u.was) m;
	RETURN cardinality(names);
END $$;
