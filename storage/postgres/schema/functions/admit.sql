-- admit presents a call to its lane, and returns a letter: 'n' if the call is new and happens, 'r' if it
-- repeats the lane's last call, 'v' if it is older than that or the lane's last call is another, and 'x'
-- if the lane has expired. A call is new if its number is new to a lane that lives and was not opened
-- ahead of the clock. The lane then keeps the number, the verb v and the first version of the call (p_base).
-- A call that is on its way twice waits here for itself.
CREATE FUNCTION {schema}.admit(p_lane bytea, p_opened int8, p_seq int8, p_base int8, v "char", now int8)
RETURNS "char" LANGUAGE plpgsql AS $$
BEGIN
	UPDATE {schema}.lanes l SET seq = p_seq, base = p_base, verb = v, outcome = ''
	WHERE l.lane = p_lane AND l.seq < p_seq AND {schema}.lives(l.opened, now);
	IF NOT FOUND THEN -- a new lane, or a call that does not happen
		INSERT INTO {schema}.lanes AS l (lane, opened, seq, base, verb)
		SELECT p_lane, p_opened, p_seq, p_base, v WHERE {schema}.lives(p_opened, now)
		ON CONFLICT (lane) DO UPDATE SET seq = p_seq, base = p_base, verb = v, outcome = ''
		WHERE l.seq < p_seq AND {schema}.lives(l.opened, now);
	END IF;
	IF FOUND THEN
		RETURN 'n';
	END IF;
	RETURN coalesce((SELECT CASE WHEN l.seq < p_seq THEN 'x' WHEN l.seq > p_seq THEN 'v'
		WHEN l.verb = v OR l.verb = 'a' AND v = 'o' THEN 'r' ELSE 'v' END
		FROM {schema}.lanes l WHERE l.lane = p_lane FOR SHARE), 'x');
END $$;
