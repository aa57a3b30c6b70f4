-- jobtime returns a moment, null for 0 and for a number that is no moment.
CREATE FUNCTION {schema}.jobtime(us int8) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT CASE WHEN us > 0 AND us <= 253402300799999999
		THEN timestamptz '1970-01-01 00:00:00+00' + us / 1000000 * interval '1 second'
			+ us % 1000000 * interval '1 microsecond' END
$$;
