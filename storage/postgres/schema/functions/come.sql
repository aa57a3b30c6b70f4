-- come gives the moment up to which what is timed happens: now, by the clock, or 0 in a wait.
-- One begins where the clock is far past the mark, which is that of the last step. A clock that
-- is before the beginning jumped back.
CREATE FUNCTION {schema}.come(now int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	mark int8 := coalesce(pg_sequence_last_value('{schema}.mark'::regclass), 0);
	began int8 := coalesce(pg_sequence_last_value('{schema}.jumped'::regclass), 1);
BEGIN
	IF began = 1 AND mark > 0 AND now > mark + {jumpafter} THEN
		PERFORM setval('{schema}.jumped', now);
		RETURN 0;
	ELSIF began > 1 AND now >= began AND now < began + {jumpwait} THEN
		RETURN 0;
	ELSIF began > 1 THEN
		PERFORM setval('{schema}.jumped', 1);
	END IF;
	RETURN now;
END $$;
