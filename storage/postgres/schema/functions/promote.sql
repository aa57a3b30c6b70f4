-- promote moves up to most due tasks of each line of a queue to the tail of the waiting tasks, in the
-- order in which they were due, and gives how many it moved.
CREATE FUNCTION {schema}.promote(q int4, now int8, come int8, most int4) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	tail int8 := {schema}.stamp(now, 2 * most + 1);
	promoted int4;
BEGIN
	WITH a AS MATERIALIZED (
		SELECT t.ctid AS c, t.sort AS due, t.turn, t.line & 15 AS was FROM {schema}.tasks t
		WHERE t.line = q * 16 + 6 AND t.sort <= come AND t.flags & {newer} = 0
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	), b AS MATERIALIZED (
		SELECT t.ctid AS c, t.sort AS due, t.turn, t.line & 15 AS was FROM {schema}.tasks t
		WHERE t.line = q * 16 + 7 AND t.sort <= come AND t.flags & {newer} = 0
		ORDER BY t.sort, t.turn LIMIT most FOR UPDATE SKIP LOCKED
	), ranked AS (
		SELECT x.c, x.was, row_number() OVER (ORDER BY x.due, x.turn) AS n
		FROM (SELECT * FROM a UNION ALL SELECT * FROM b) x
	), moved AS (
		UPDATE {schema}.tasks t
		SET line = q * 16 + CASE WHEN t.flags & 8 > 0 THEN 3 WHEN t.flags & 4 > 0 THEN 2 ELSE 1 END,
			sort = ((9 - t.priority)::int8 << 56) + tail + k.n
		FROM ranked k WHERE t.ctid = k.c
		RETURNING k.was, t.line & 15 AS state
	), kept AS (
		INSERT INTO {schema}.deltas (queue, counter, n)
		SELECT q, c.counter, sum(c.n) FROM moved m, LATERAL (VALUES (m.was, -1), (m.state, 1)) AS c (counter, n) GROUP BY c.counter
	)
	SELECT count(*) INTO promoted FROM moved;
	RETURN promoted;
END $$;
