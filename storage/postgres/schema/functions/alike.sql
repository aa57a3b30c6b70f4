-- alike reports whether what is due first, since a moment, has one priority and may be
-- claimed by anybody, so that it can be taken in the order in which it is due.
CREATE FUNCTION {schema}.alike(q int4, since int8, now int8, most int4) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT min(x.priority) = max(x.priority) AND bool_and(x.flags & ({newer} | 12) = 0) FROM (
		(SELECT t.priority, t.flags FROM {schema}.tasks t
		WHERE t.line = q * 16 + 6 AND t.sort > since AND t.sort <= now ORDER BY t.sort, t.turn LIMIT most)
		UNION ALL
		(SELECT t.priority, t.flags FROM {schema}.tasks t
		WHERE t.line = q * 16 + 7 AND t.sort > since AND t.sort <= now ORDER BY t.sort, t.turn LIMIT most)
	) x);
END $$;
