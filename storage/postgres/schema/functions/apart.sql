-- apart sets a record that cannot be read apart, and counts it. One in a line of another queue
-- than its own is looked for along the lines.
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
		IF was < 0 THEN
			INSERT INTO {schema}.deltas (queue, waiting) VALUES (was, -1);
		END IF;
		was := was & 15;
		INSERT INTO {schema}.deltas (queue, waiting, pending, scheduled, retry, cursors, damaged, t_deleted)
		VALUES (q, -(was IN (1, 2, 3, 14))::int4, -(was IN (4, 5))::int4, -(was = 6)::int4, -(was = 7)::int4,
			-(was = 8)::int4, 1, (was <> 8)::int4);
	END IF;
END $$;
