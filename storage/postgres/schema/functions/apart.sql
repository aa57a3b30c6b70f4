-- apart sets a record that cannot be read apart, and counts it. A record that stands in a line of
-- another queue than its own is looked for along the lines.
CREATE FUNCTION {schema}.apart(q int4, i bytea) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	c tid;
	was int4;
BEGIN
	SELECT t.ctid, t.line INTO c, was FROM {schema}.tasks t
	WHERE t.queue = q AND t.id = i AND (t.line > q * 16 AND t.line < q * 16 + 9 OR t.line < 0) FOR UPDATE;
	IF NOT FOUND THEN
		SELECT t.ctid, t.line INTO c, was FROM {schema}.tasks t
		WHERE t.line > q * 16 AND t.line < q * 16 + 9 AND t.id = i AND t.queue <> q LIMIT 1 FOR UPDATE;
	END IF;
	IF FOUND THEN
		UPDATE {schema}.tasks t SET line = q * 16 + 9, sort = {schema}.told() WHERE t.ctid = c;
		INSERT INTO {schema}.deltas (queue, counter, n)
		SELECT * FROM (VALUES (was, 14, -(was < 0)::int4), (q, was & 15, -1), (q, 9, 1),
			(q, {deleted}, (was & 15 <> 8)::int4)) AS d (queue, counter, n) WHERE d.n <> 0;
	END IF;
END $$;
