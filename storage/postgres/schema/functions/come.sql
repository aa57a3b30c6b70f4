-- come returns the moment up to which due tasks, leases and the like are handled: now, by the clock, or
-- 0 during a wait. A wait begins if the clock is far past the clock of the last step. The mark has that
-- clock, unless the clock was ahead before and is right again: then the mark stays ahead, and the sequence
-- clock has it, moved once a minute. A clock that is before the beginning of a wait has jumped back, unless
-- another step began the wait in this very moment.
CREATE FUNCTION {schema}.come(now int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	mark int8 := coalesce(pg_sequence_last_value('{schema}.mark'::regclass), 0);
	clock int8 := coalesce(pg_sequence_last_value('{schema}.clock'::regclass), 1);
	began int8 := coalesce(pg_sequence_last_value('{schema}.jumped'::regclass), 1);
	last int8 := CASE WHEN clock > 1 THEN clock ELSE mark END;
BEGIN
	IF now + 20000 < mark THEN -- or this step read the clock long ago, and others have moved the mark since
		now := greatest(now, {schema}.told());
	END IF;
	IF now + 20000 < mark AND abs(now - last) > 60000000 THEN
		PERFORM setval('{schema}.clock', now);
	ELSIF now + 20000 >= mark AND clock > 1 THEN
		PERFORM setval('{schema}.clock', 1);
	END IF;
	IF last > 0 AND now > last + {jumpafter} AND NOT now BETWEEN began - 20000 AND began + {jumpafter} THEN
		PERFORM setval('{schema}.jumped', now);
		RETURN 0;
	ELSIF began > 1 AND now >= began - 20000 AND now < began + {jumpwait} THEN
		RETURN 0;
	ELSIF began > 1 THEN
		PERFORM setval('{schema}.jumped', 1);
	END IF;
	RETURN now;
END $$;
