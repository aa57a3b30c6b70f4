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
