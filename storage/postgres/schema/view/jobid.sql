-- jobid returns the id of a task: 16 bytes stand for a made id, shown as 26 digits of base 32, and any
-- other id is kept as its text (names.go).
CREATE FUNCTION {schema}.jobid(id bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	bits bit(130);
	digits text := '';
BEGIN
	IF octet_length(id) <> 16 THEN
		RETURN {schema}.jobname(id);
	ELSIF get_byte(id, 0) >= 48 THEN
		RETURN {schema}.jobname(id);
	END IF;
	bits := ('x' || encode(id, 'hex') || '0')::bit(130);
	FOR i IN 0..25 LOOP
		digits := digits || substr('0123456789abcdefghijklmnopqrstuv',
			substring(bits FROM 5 * i + 1 FOR 5)::bit(5)::int4 + 1, 1);
	END LOOP;
	RETURN digits;
END $$;
