-- jobretries returns how often a task failed and was retried: the number behind the creation in its
-- past.
CREATE FUNCTION {schema}.jobretries(past bytea) RETURNS int8 LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF octet_length(past) IN (0, 8) THEN
		RETURN 0;
	END IF;
	RETURN (SELECT j.value FROM {schema}.jobnumber(past, 8) j WHERE j.value <= 2147483648);
END $$;
