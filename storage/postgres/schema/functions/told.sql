-- told returns the time by the server's clock. It costs no call: the planner inlines it.
CREATE FUNCTION {schema}.told() RETURNS int8 LANGUAGE sql AS $$
	SELECT (date_part('epoch', clock_timestamp()) * 1000000)::int8
$$;
