-- fitting returns the first of some tasks (cs): as many as have room for their records, and at least one if
-- one is needed. It returns the bytes of these records (used), and the sort of the last of these tasks
-- (last).
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
