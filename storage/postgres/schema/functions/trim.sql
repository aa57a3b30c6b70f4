-- trim deletes up to most expired records of each state of a queue, and with them its oldest dead
-- tasks beyond dead_max (below 0: none), which it counts as evicted. One snapshot both counts and chooses
-- these, so that two transactions which trim at the same time choose the same ones, and it passes over tasks
-- that another transaction has locked. It returns how many tasks it deleted. It also deletes expired unique
-- keys. It reads the deltas, which have no index; the planner takes that for so expensive that it would
-- compile the plan: jit is off.
CREATE FUNCTION {schema}.trim(q int4, now int8, most int4, dead_max int8) RETURNS int4 LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	s int4;
	n int4;
	evicted int4;
	gone int4 := 0;
BEGIN
	FOREACH s IN ARRAY ARRAY[{states.ended}] LOOP
		WITH k AS MATERIALIZED (
			SELECT t.c FROM (
				SELECT x.c, x.expires, row_number() OVER (ORDER BY x.expires) AS n FROM (
					SELECT e.ctid AS c, e.expires FROM {schema}.ended e WHERE e.line = {schema}.line(q, s)
					ORDER BY e.expires LIMIT most
				) x
			) t WHERE t.expires <= now OR t.n <= (
				SELECT CASE WHEN s = {state.dead} AND dead_max >= 0 THEN {schema}.dead(q) - dead_max ELSE 0 END)
		), a AS MATERIALIZED (
			SELECT e.ctid AS c FROM k JOIN {schema}.ended e ON e.ctid = k.c FOR UPDATE OF e SKIP LOCKED
		), d AS (
			DELETE FROM {schema}.ended e USING a WHERE e.ctid = a.c RETURNING e.queue, e.id, e.flags, e.expires
		), f AS (
			DELETE FROM {schema}.sides s USING (
				SELECT (SELECT x.ctid FROM {schema}.sides x WHERE x.queue = d.queue AND x.id = d.id) AS c
				FROM d WHERE d.flags & 16 > 0 OFFSET 0
			) u WHERE s.ctid = u.c
		)
		SELECT count(*), count(*) FILTER (WHERE d.expires > now) INTO n, evicted FROM d;
		PERFORM {schema}.passed(q, n - evicted, s, 0, 0);
		PERFORM {schema}.passed(q, evicted, s, 0, {total.evicted});
		gone := gone + n;
	END LOOP;
	DELETE FROM {schema}.keys k WHERE k.ctid = ANY (ARRAY(
		SELECT w.ctid FROM {schema}.keys w WHERE w.queue + 0 = q AND w.until > 0 AND w.until <= now
		ORDER BY w.until LIMIT most FOR UPDATE SKIP LOCKED));
	RETURN gone;
END $$;
