-- promote moves up to most due tasks of each line of a queue to the tail of the waiting tasks, in the
-- order in which they were due, and gives how many it moved.
CREATE FUNCTION {schema}.promote(q int4, now int8, come int8, most int4) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	tail int8 := {schema}.stamp(now, 2 * most + 1);
	promoted int4;
BEGIN
	WITH due AS MATERIALIZED (
		SELECT t.* FROM unnest(ARRAY[{states.due}]) AS s (state), LATERAL (
			SELECT x.ctid AS c, x.sort, x.turn, s.state AS was FROM {schema}.tasks x
			WHERE x.line = {schema}.line(q, s.state) AND x.sort <= come AND x.flags & {newer} = 0
			ORDER BY x.sort, x.turn LIMIT most FOR UPDATE OF x SKIP LOCKED
		) t
	), ranked AS (
		SELECT d.c, d.was, row_number() OVER (ORDER BY d.sort, d.turn) AS n FROM due d
	), moved AS (
		UPDATE {schema}.tasks t
		SET line = {schema}.line(q, CASE WHEN t.flags & 8 > 0 THEN {state.suspect} WHEN t.flags & 4 > 0 THEN {state.prompt}
				ELSE {state.waiting} END),
			sort = {schema}.place(t.priority, tail + k.n)
		FROM ranked k WHERE t.ctid = k.c
		RETURNING k.was, {schema}.state(t.line) AS state
	), kept AS MATERIALIZED (
		SELECT m.n, {schema}.passed(q, m.n, m.was, m.state, 0)
		FROM (SELECT x.was, x.state, count(*)::int4 AS n FROM moved x GROUP BY x.was, x.state) m
	)
	SELECT coalesce(sum(k.n), 0) INTO promoted FROM kept k;
	RETURN promoted;
END $$;
