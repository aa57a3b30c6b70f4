-- jobcreated returns when a task was created: the beginning of its past, or its version if the past
-- is empty.
CREATE FUNCTION {schema}.jobcreated(past bytea, version int8) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT CASE WHEN past = '' THEN {schema}.jobtime(version)
		WHEN octet_length(past) >= 8
			THEN {schema}.jobtime(('x' || encode(substr(past, 1, 8), 'hex'))::bit(64)::int8) END
$$;
