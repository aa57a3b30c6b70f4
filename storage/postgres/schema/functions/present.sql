-- present admits calls that go as expected, and reports whether all of them were admitted. Where it
-- reports false some may have been: the caller rolls back, or had only one call. Lanes are compared
-- in a way that leaves the planner only one look for each. Their age stands in a call (coalesce),
-- which tells the planner nothing: as a mere range it made the planner read all lanes.
CREATE FUNCTION {schema}.present(lanes bytea[], opens int8[], seqs int8[], offs int8[], p_base int8, now int8)
RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	n int8;
BEGIN
	IF cardinality(lanes) = 1 THEN
		UPDATE {schema}.lanes l SET seq = seqs[1], base = p_base + offs[1], verb = 'a', outcome = ''
		WHERE l.lane = lanes[1] AND l.seq < seqs[1]
			AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
	ELSE
		UPDATE {schema}.lanes l SET seq = u.seq, base = p_base + u.off, verb = 'a', outcome = ''
		FROM unnest(lanes, seqs, offs) AS u (lane, seq, off)
		WHERE l.lane >= u.lane AND l.lane <= u.lane AND l.seq < u.seq
			AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
	END IF;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n < cardinality(lanes) THEN -- some are new
		SELECT n + count(*) INTO n FROM {schema}.admit(lanes, opens, seqs, ARRAY(
			SELECT p_base + o.off FROM unnest(offs) WITH ORDINALITY AS o (off, n) ORDER BY o.n), 'a', now);
	END IF;
	RETURN n = cardinality(lanes);
END $$;
