-- hide puts up to most cursors of a queue that are due where other claims find them only after a
-- while, and gives them.
CREATE FUNCTION {schema}.hide(q int4, now int8, come int8, most int4) RETURNS SETOF {schema}.tasks
LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY
	WITH a AS MATERIALIZED (
		SELECT t.ctid AS c FROM {schema}.tasks t
		WHERE t.line = q * 16 + 8 AND t.sort <= come AND t.flags & {newer} = 0
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	)
	UPDATE {schema}.tasks t SET sort = now + 2000000 FROM a WHERE t.ctid = a.c RETURNING t.*;
END $$;
