-- state returns the state of the tasks in a line. It costs no call: the planner inlines it.
CREATE FUNCTION {schema}.state(line int8) RETURNS int2 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT (line & 15)::int2
$$;
