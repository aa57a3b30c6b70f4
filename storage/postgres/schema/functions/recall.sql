-- recall presents a claim to its lane. It gives 'n' where the claim is new and may happen, 'r' where
-- it repeats the lane's last call, 'v' where it is older than that or the lane's last call is
-- another, and 'x' where the lane has expired.
CREATE FUNCTION {schema}.recall(p_lane bytea, p_opened int8, p_seq int8, p_base int8, now int8) RETURNS "char"
LANGUAGE plpgsql AS $$
DECLARE
	known record;
BEGIN
	UPDATE {schema}.lanes l SET seq = p_seq, base = p_base, verb = 'c', outcome = ''
	WHERE l.lane = p_lane AND l.seq < p_seq
		AND coalesce(l.opened BETWEEN now - {lanelife} AND now + {lanelife}, false);
	IF NOT FOUND THEN -- a new lane, or a call not to be carried out
		PERFORM FROM {schema}.admit(ARRAY[p_lane], ARRAY[p_opened], ARRAY[p_seq], ARRAY[p_base], 'c', now);
	END IF;
	IF FOUND THEN
		RETURN 'n';
	END IF;
	SELECT l.seq, l.verb INTO known FROM {schema}.lanes l WHERE l.lane = p_lane;
	IF NOT FOUND OR known.seq < p_seq THEN
		RETURN 'x';
	ELSIF known.seq > p_seq OR known.verb <> 'c' THEN
		RETURN 'v';
	END IF;
	RETURN 'r';
END $$;
