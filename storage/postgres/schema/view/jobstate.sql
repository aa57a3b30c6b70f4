-- jobstate gives the state of the tasks in a line (schema/tables), null for a state that no task has.
CREATE FUNCTION {schema}.jobstate(line int4) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT (ARRAY['waiting', 'waiting', 'waiting', 'pending', 'pending', 'scheduled', 'retry', NULL,
		'damaged', 'completed', 'cancelled', 'dead', NULL, 'waiting'])[line & 15]
$$;
