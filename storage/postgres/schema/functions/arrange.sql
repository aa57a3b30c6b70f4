-- arrange puts partitions, whose lines the step has locked, where they belong in their rings: at the end
-- of the ready ones, behind the turn p_turn, or where they wait for the end of their pause and their
-- rest. If a partition has neither, and no waiting tasks, it waits out of the way for its running tasks,
-- or for the moment from which its starts do not count, or for tasks if it has a limit of its own; if it
-- has nothing at all, arrange deletes it.
-- Pauses, rests and starts that are over at the moment come have ended. A ready partition that stays
-- ready keeps its turn. A partition that a task is about to join counts as one with waiting tasks: a step
-- that joins a line locks it (joining).
CREATE FUNCTION {schema}.arrange(numbers int8[], p_turn int8, come int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	empty int8[] := ARRAY(
		SELECT k.line FROM {schema}.lines k
		WHERE k.line = ANY (numbers) AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line OFFSET 0)
		FOR UPDATE OF k SKIP LOCKED);
BEGIN
	-- A statement of its own: a task may have joined a line before the line was locked.
	empty := ARRAY(SELECT u.line FROM unnest(empty) AS u (line)
		WHERE NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = u.line OFFSET 0));
	DELETE FROM {schema}.lines k
	WHERE k.line = ANY (empty) AND k.paused <= come AND k.rest <= come AND k.own = '' AND {schema}.over(k.queue, k.own, k.starts) <= come
		AND NOT EXISTS (SELECT FROM {schema}.tasks t
			WHERE t.queue + 0 = k.queue AND t.partition = k.sub AND t.flags & 32 > 0 OFFSET 0);
	UPDATE {schema}.lines k SET paused = x.paused, rest = x.rest, starts = x.starts, sort = x.sort,
		turn = CASE WHEN x.sort = k.sort THEN k.turn ELSE p_turn + x.n END,
		turn_left = CASE WHEN x.sort = k.sort THEN k.turn_left ELSE 0 END,
		named = CASE WHEN k.line = ANY (empty) AND x.sort < 9223372036854775807 THEN greatest(x.sort, k.named) ELSE k.named END
	FROM (
		SELECT y.c, y.paused, y.rest, CASE WHEN y.over > come THEN y.starts ELSE '' END AS starts, CASE
				WHEN y.paused > 0 OR y.rest > 0 OR y.line <> ALL (empty) THEN greatest(y.paused, y.rest)
				WHEN EXISTS (SELECT FROM {schema}.tasks t
					WHERE t.queue + 0 = y.queue AND t.partition = y.sub AND t.flags & 32 > 0 OFFSET 0) THEN 9223372036854775807
				WHEN y.own <> '' AND y.over <= come THEN 9223372036854775807 ELSE y.over END AS sort, row_number() OVER (ORDER BY y.sort, y.sub) AS n
		FROM (
			SELECT z.ctid AS c, z.*, CASE WHEN z.pause > come THEN z.pause ELSE 0 END AS paused,
				CASE WHEN z.pausing > come THEN z.pausing ELSE 0 END AS rest
			FROM unnest(numbers) AS u (line), LATERAL (
				SELECT w.ctid, w.line, w.queue, w.sub, w.sort, w.turn, w.own, w.starts, w.paused AS pause, w.rest AS pausing,
					{schema}.over(w.queue, w.own, w.starts) AS over
				FROM {schema}.lines w WHERE w.line = u.line OFFSET 0
			) z
		) y
	) x
	WHERE k.ctid = x.c AND (k.sort, k.paused, k.rest, k.starts) IS DISTINCT FROM (x.sort, x.paused, x.rest, x.starts);
END $$;
