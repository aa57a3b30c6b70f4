-- again returns the tasks of a queue that were claimed with the token in holder, in the order of their
-- claim.
CREATE FUNCTION {schema}.again(q int4, holder bytea) RETURNS SETOF {schema}.tasks LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY
	SELECT t.* FROM {schema}.tasks t
	WHERE t.line = ANY (ARRAY[{lines.pending}]) AND substr(t.lease, 1, 16) = substr(holder, 1, 16)
	ORDER BY t.version;
END $$;
