-- present presents calls to their lanes, and returns the letter of each (admit). Each call keeps its base:
-- p_base plus its offset (offs). Lanes are compared in a way that leaves the planner only one lookup for
-- each.
CREATE FUNCTION {schema}.present(
	lanes bytea[], opens int8[], seqs int8[], offs int8[], p_base int8, v "char", now int8
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	known bytea[];
	letters text := '';
BEGIN
	IF cardinality(lanes) = 1 THEN
		RETURN {schema}.admit(lanes[1], opens[1], seqs[1], p_base + offs[1], v, now);
	END IF;
	WITH w AS (
		UPDATE {schema}.lanes l SET seq = u.seq, base = p_base + u.off, verb = v, outcome = ''
		FROM unnest(lanes, seqs, offs) AS u (lane, seq, off)
		WHERE l.lane >= u.lane AND l.lane <= u.lane AND l.seq < u.seq AND {schema}.lives(l.opened, now)
		RETURNING l.lane
	)
	SELECT array_agg(w.lane) INTO known FROM w;
	IF cardinality(known) = cardinality(lanes) THEN
		RETURN repeat('n', cardinality(lanes));
	END IF;
	FOR i IN 1..cardinality(lanes) LOOP
		letters := letters || CASE WHEN lanes[i] = ANY (known) THEN 'n'
			ELSE {schema}.admit(lanes[i], opens[i], seqs[i], p_base + offs[i], v, now)::text END;
	END LOOP;
	RETURN letters;
END $$;
