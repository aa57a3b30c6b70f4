-- resume ends up to {maxrest} pauses of partitions of a queue that are over, and puts these partitions
-- at the end of the ring, behind the turns that the claim has given already. It deletes those without
-- tasks, and returns how many pauses it ended.
CREATE FUNCTION {schema}.resume(q int4, now int8, given int4, come int8) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	tail int8;
	subs text[];
BEGIN
	IF NOT EXISTS (SELECT FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come) THEN
		RETURN 0;
	END IF;
	tail := {schema}.stamp(now, given + {maxrest} + 1) + given;
	WITH over AS MATERIALIZED (
		SELECT x.c, row_number() OVER (ORDER BY x.sort, x.turn) AS n FROM (
			SELECT k.ctid AS c, k.sort, k.turn FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come
			ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE SKIP LOCKED
		) x
	), moved AS (
		UPDATE {schema}.lines k SET sort = 0, turn = tail + o.n FROM over o WHERE k.ctid = o.c RETURNING k.sub
	)
	SELECT coalesce(array_agg(m.sub), '{}') INTO subs FROM moved m;
	IF subs <> '{}' THEN
		PERFORM {schema}.vacate(array_fill(q, ARRAY[cardinality(subs)]), subs);
	END IF;
	RETURN cardinality(subs);
END $$;
