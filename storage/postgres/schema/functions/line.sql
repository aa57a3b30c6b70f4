-- line returns the number of the line in which the tasks of a queue and a state stand. The number of a
-- line with a name is made of a number below 0. It costs no call: the planner inlines it.
CREATE FUNCTION {schema}.line(number int8, state int4) RETURNS int8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT number * 16 + state
$$;
