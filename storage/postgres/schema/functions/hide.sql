-- hide moves up to most due cursors of a queue to where other claims find them only after a while: as many
-- as have room for their records, and at least one if none was handed out before, so that the room is whole.
-- It returns their places (ticks), and the bytes of the records that it saw (used): more than room if some
-- of these have none.
CREATE FUNCTION {schema}.hide(
	q int4, now int8, come int8, most int4, room int8, OUT ticks tid[], OUT used int8
) LANGUAGE plpgsql AS $$
DECLARE
	due tid[];
BEGIN
	SELECT coalesce(array_agg(x.c), '{}'), coalesce(sum(x.size), 0) INTO due, used
	FROM (
		SELECT t.ctid AS c, octet_length(t.record) AS size FROM {schema}.tasks t
		WHERE t.line = {schema}.line(q, {state.cursor}) AND t.sort <= come AND t.flags & {newer} = 0
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	) x;
	IF used > room THEN
		due := (SELECT f.cs FROM {schema}.fitting(due, room, room = {maxclaimbytes}) f);
	END IF;
	ticks := '{}';
	IF due <> '{}' THEN
		WITH hidden AS (
			UPDATE {schema}.tasks t SET sort = now + {tickhide} WHERE t.ctid = ANY (due) RETURNING t.ctid AS c
		)
		SELECT coalesce(array_agg(h.c), '{}') INTO ticks FROM hidden h;
	END IF;
END $$;
