-- passed counts that some tasks of a queue have passed from one state to another: into the storage if was is
-- 0, and out of it if state is 0. total is the total that grows by that, or 0.
CREATE FUNCTION {schema}.passed(q int4, tasks int4, was int4, state int4, total int4)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT q, c.counter, c.n FROM (VALUES (was, -tasks), (state, tasks), (total, tasks)) AS c (counter, n)
	WHERE c.counter > 0 AND c.n <> 0;
END $$;
