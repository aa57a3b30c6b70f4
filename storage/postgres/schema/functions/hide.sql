-- hide moves up to most due cursors of a queue to where other claims find them only after a while,
-- and gives their places.
CREATE FUNCTION {schema}.hide(q int4, now int8, come int8, most int4) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
	ticks tid[];
BEGIN
	WITH a AS MATERIALIZED (
		SELECT t.ctid AS c FROM {schema}.tasks t
		WHERE t.line = {schema}.line(q, {state.cursor}) AND t.sort <= come AND t.flags & {newer} = 0
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	), hidden AS (
		UPDATE {schema}.tasks t SET sort = now + {tickhide} FROM a WHERE t.ctid = a.c RETURNING t.ctid AS c
	)
	SELECT coalesce(array_agg(h.c), '{}') INTO ticks FROM hidden h;
	RETURN ticks;
END $$;
