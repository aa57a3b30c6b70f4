-- abandon hides some queues that were empty, without settings and untouched for the time idle. It
-- deletes some rows that have been hidden for the time over, some empty lines of kinds that
-- were not named for the time idle, and some partitions of which nothing is left. A line that
-- has just begun may be that of a task that is about to join it. It puts partitions that are out of the way
-- of claims, though tasks wait there and no pause holds them, back into their rings.
CREATE FUNCTION {schema}.abandon(idle int8, over int8) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
	now int8 := {schema}.come({schema}.told());
	lines int8[] := ARRAY(
		SELECT k.line FROM {schema}.lines k
		WHERE k.tasks <= 0 AND (k.state = {state.declined} AND k.named < now - idle
				OR k.state = {state.keyed} AND k.named < now - 1000000 AND (k.sort <= now
					OR k.sort = 9223372036854775807 AND k.paused = 0 AND k.own = '' AND NOT EXISTS (SELECT FROM {schema}.tasks t
						WHERE t.queue + 0 = k.queue AND t.partition = k.sub AND t.flags & 32 > 0 OFFSET 0)))
			AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line)
		LIMIT 1000 FOR UPDATE SKIP LOCKED);
BEGIN
	-- A statement of its own: a task may have joined a line before the line was locked.
	DELETE FROM {schema}.lines k
	WHERE k.line = ANY (lines) AND k.state = {state.declined}
		AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = k.line);
	PERFORM {schema}.arrange(ARRAY(SELECT u.line FROM unnest(lines) AS u (line)
		WHERE {schema}.state(u.line) = {state.keyed}) || ARRAY(
			SELECT k.line FROM {schema}.lines k
			WHERE k.state = {state.keyed} AND k.sort = 9223372036854775807 AND k.paused = 0 AND k.tasks > 0
			LIMIT 1000 FOR UPDATE SKIP LOCKED), {schema}.told(), now);
	UPDATE {schema}.queues SET hidden = true, touched = {schema}.told() WHERE queue = ANY (ARRAY(
		SELECT q.queue FROM {schema}.queues q
		WHERE NOT q.hidden AND q.touched < now - idle
			AND NOT q.limited AND NOT {schema}.paused(q.paused, q.paused_until, now) AND {schema}.unused(q.queue)
			AND NOT EXISTS (SELECT FROM {schema}.lines k WHERE k.queue + 0 = q.queue AND k.state = {state.keyed} AND k.sort > now)
		LIMIT 100 FOR UPDATE SKIP LOCKED));
	WITH gone AS (
		DELETE FROM {schema}.queues WHERE queue = ANY (ARRAY(
			SELECT q.queue FROM {schema}.queues q
			WHERE q.hidden AND q.touched < now - over AND {schema}.unused(q.queue)
			LIMIT 100 FOR UPDATE SKIP LOCKED)) RETURNING queue
	)
	DELETE FROM {schema}.limits l USING gone WHERE l.queue = gone.queue;
END $$;
