-- jobkind reads the kind from the head of a record (record.go), which has flags, two numbers, and the
-- kind behind its length.
CREATE FUNCTION {schema}.jobkind(head bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	at int4 := 1;
	size int8;
BEGIN
	IF octet_length(head) = 0 THEN
		RETURN NULL;
	ELSIF get_byte(head, 0) < 128 THEN
		RETURN NULL;
	END IF;
	FOR n IN 1..3 LOOP
		SELECT j.value, j.next INTO size, at FROM {schema}.jobnumber(head, at) j;
	END LOOP;
	IF size > octet_length(head) - at THEN
		RETURN NULL;
	END IF;
	RETURN {schema}.jobname(substr(head, at + 1, size::int4));
END $$;
