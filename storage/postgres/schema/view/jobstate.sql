-- jobstate returns the state of the tasks in a line (schema/tables), null for a state that no task has.
CREATE FUNCTION {schema}.jobstate(line int8) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT (ARRAY[{states.names}])[{schema}.state(line)]
$$;
