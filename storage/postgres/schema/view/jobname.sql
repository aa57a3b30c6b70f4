-- jobname returns a name that is kept as its text, null if the bytes are no name.
CREATE FUNCTION {schema}.jobname(b bytea) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT CASE WHEN n.name ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$' THEN n.name END
	FROM encode(substr(b, 1, 129), 'escape') AS n (name)
$$;
