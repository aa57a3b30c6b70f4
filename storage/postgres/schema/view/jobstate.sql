-- jobstate gives the state in which a line has its tasks (schema/tables), null for one that no
-- task has.
CREATE FUNCTION {schema}.jobstate(line int4) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT (ARRAY['waiting', 'waiting', 'waiting', 'pending', 'pending', 'scheduled', 'retry', NULL,
		'damaged', 'completed', 'cancelled', 'dead', NULL, 'waiting'])[line & 15]
$$;
