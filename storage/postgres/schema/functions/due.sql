-- due locks up to most tasks that are due since a moment, the earliest first. It gives their places,
-- as many as have room for their records, the states they are in, the bytes of these records,
-- and how many it saw.
CREATE FUNCTION {schema}.due(
	q int4, since int8, come int8, most int4, room int8, needed bool,
	OUT cs tid[], OUT was int4[], OUT used int8, OUT seen int4
) LANGUAGE plpgsql AS $$
BEGIN
	WITH a AS MATERIALIZED (
		SELECT t.ctid AS c, t.sort, t.turn, 6 AS state, octet_length(t.record) AS size FROM {schema}.tasks t
		WHERE t.line = q * 16 + 6 AND t.sort > since AND t.sort <= come
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	), b AS MATERIALIZED (
		SELECT t.ctid AS c, t.sort, t.turn, 7 AS state, octet_length(t.record) AS size FROM {schema}.tasks t
		WHERE t.line = q * 16 + 7 AND t.sort > since AND t.sort <= come
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	)
	SELECT coalesce(array_agg(x.c), '{}'), coalesce(array_agg(x.state), '{}'), coalesce(sum(x.size), 0), count(*)
	INTO cs, was, used, seen FROM (
		SELECT * FROM (SELECT * FROM a UNION ALL SELECT * FROM b) y ORDER BY y.sort, y.turn LIMIT most
	) x;
	IF used > room THEN
		SELECT f.cs, f.used INTO cs, used FROM {schema}.fitting(cs, room, needed) f;
		was := was[1:cardinality(cs)];
	END IF;
END $$;
