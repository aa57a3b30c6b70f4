-- soonest returns the moment at which a task or cursor of a queue is due next after a moment, or null.
-- Cursors count however long they have been due.
CREATE FUNCTION {schema}.soonest(q int4, since int8) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
	RETURN least(
		(SELECT t.sort FROM {schema}.tasks t
			WHERE t.line = {schema}.line(q, {state.scheduled}) AND t.sort > since ORDER BY t.sort LIMIT 1),
		(SELECT t.sort FROM {schema}.tasks t
			WHERE t.line = {schema}.line(q, {state.retry}) AND t.sort > since ORDER BY t.sort LIMIT 1),
		(SELECT t.sort FROM {schema}.tasks t
			WHERE t.line = {schema}.line(q, {state.cursor}) AND t.sort < 9223372036854775807 ORDER BY t.sort LIMIT 1));
END $$;
