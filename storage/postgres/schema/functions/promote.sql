-- promote moves up to most tasks of each line of a queue that are due to the tail of what waits, in
-- the order in which they were due. It gives how many, and whether some of them may only start
-- at once or are suspects.
CREATE FUNCTION {schema}.promote(
	q int4, now int8, come int8, most int4, OUT promoted int4, OUT prompts bool, OUT suspects bool
) LANGUAGE plpgsql AS $$
DECLARE
	tail int8 := {schema}.stamp(now, 2 * most + 1);
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
		RETURNING k.was, t.flags
	), kept AS (
		INSERT INTO {schema}.deltas (queue, waiting, scheduled, retry)
		SELECT q, count(*), -count(*) FILTER (WHERE m.was = 6), -count(*) FILTER (WHERE m.was = 7)
		FROM moved m HAVING count(*) > 0
	)
	SELECT count(*), coalesce(bool_or(m.flags & 12 = 4), false), coalesce(bool_or(m.flags & 8 > 0), false)
	INTO promoted, prompts, suspects FROM moved m;
END $$;
