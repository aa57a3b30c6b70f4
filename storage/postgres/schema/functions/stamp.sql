-- stamp reserves n versions from the mark on and returns the first: now, by the clock, unless the mark
-- is further ahead. The mark stands a little ahead of the versions handed out, so that few steps have
-- to move it. If the clock is behind it by more than that, the clock was set back. Then nextval
-- moves the mark on one by one: of two steps that set it, one could move it back.
CREATE FUNCTION {schema}.stamp(now int8, n int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	mark int8 := coalesce(pg_sequence_last_value('{schema}.mark'::regclass), 0);
	base int8;
BEGIN
	IF now + 20000 < mark OR now > mark + {jumpafter} OR pg_sequence_last_value('{schema}.clock'::regclass) > 1 THEN
		PERFORM {schema}.come(now); -- a wait may begin, and the clock is noted
	END IF;
	IF now + n <= mark AND now + 20000 >= mark THEN
		RETURN now;
	ELSIF now + 20000 < mark THEN
		base := nextval('{schema}.mark');
		PERFORM nextval('{schema}.mark') FROM generate_series(2, n);
		RETURN base;
	END IF;
	PERFORM setval('{schema}.mark', now + least(n, 10000) + 2000);
	RETURN now;
END $$;
