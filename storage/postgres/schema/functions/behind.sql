-- behind reports whether a queue needs maintenance: since a moment a lease expired, or
-- something is kept no longer.
CREATE FUNCTION {schema}.behind(q int4, since int8, now int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[q * 16 + 4, q * 16 + 5])
			AND t.sort > since AND t.sort <= now AND t.flags & {newer} = 0)
		OR EXISTS (SELECT FROM {schema}.ended e WHERE e.line = ANY (ARRAY[q * 16 + 10, q * 16 + 11, q * 16 + 12])
			AND e.expires > since AND e.expires <= now)
		OR EXISTS (SELECT FROM {schema}.keys k WHERE k.queue + 0 = q AND k.until > 0
			AND k.until > since AND k.until <= now);
END $$;
