-- behind reports whether a queue needs maintenance: a kept record or a unique key has expired since
-- a moment, a lease has ended after the moment recovered and up to the moment ended, declined tasks
-- may have waited too long, or a clock that was ahead stamped when a claim named their kind.
CREATE FUNCTION {schema}.behind(q int4, since int8, now int8, recovered int8, ended int8) RETURNS bool
LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[{lines.pending}])
			AND t.sort > recovered AND t.sort <= least(now, ended) AND t.flags & {newer} = 0)
		OR EXISTS (SELECT FROM {schema}.ended e WHERE e.line = ANY (ARRAY[{lines.ended}])
			AND e.expires > since AND e.expires <= now)
		OR EXISTS (SELECT FROM {schema}.keys k WHERE k.queue + 0 = q AND k.until > 0
			AND k.until > since AND k.until <= now)
		OR EXISTS (SELECT FROM {schema}.lines k JOIN {schema}.queues x ON x.queue = k.queue
			WHERE k.queue = q AND k.state = {state.declined} AND (k.look <= now OR k.named > {schema}.told())
				AND NOT {schema}.paused(x.paused, x.paused_until, now));
END $$;
