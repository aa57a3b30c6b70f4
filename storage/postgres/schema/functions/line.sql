-- line gives the number of the line in which the tasks of a queue and a state stand. It costs no call:
-- the planner inlines it.
CREATE FUNCTION {schema}.line(number int4, state int4) RETURNS int4 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT number * 16 + state
$$;
