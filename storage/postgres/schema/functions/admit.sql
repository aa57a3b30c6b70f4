-- admit decides which calls happen: those whose number is new to a lane that lives and was not opened
-- ahead of the clock. It gives the admitted lanes, and keeps the number and the first version of each
-- call. A call that is on its way twice waits here for itself.
CREATE FUNCTION {schema}.admit(lanes bytea[], opens int8[], seqs int8[], bases int8[], v "char", now int8)
RETURNS SETOF bytea LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY
	INSERT INTO {schema}.lanes AS l (lane, opened, seq, base, verb)
	SELECT u.lane, u.opened, u.seq, u.base, v
	FROM unnest(lanes, opens, seqs, bases) AS u (lane, opened, seq, base)
	WHERE u.opened BETWEEN now - {lanelife} AND now + {lanelife}
		OR EXISTS (SELECT FROM {schema}.lanes k WHERE k.lane = u.lane)
	ON CONFLICT (lane) DO UPDATE
	SET seq = excluded.seq, base = excluded.base, verb = excluded.verb, outcome = ''
	WHERE l.seq < excluded.seq AND l.opened BETWEEN now - {lanelife} AND now + {lanelife}
	RETURNING l.lane;
END $$;
