-- remains reports whether tasks of a queue wait that every claim may take, at the place since or
-- behind it, or before the place low, unless that is null.
CREATE FUNCTION {schema}.remains(q int4, since int8, low int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = {schema}.line(q, {state.waiting}) AND t.sort >= since)
		OR low IS NOT NULL AND EXISTS (SELECT FROM {schema}.tasks t
			WHERE t.line = {schema}.line(q, {state.waiting}) AND t.sort < low);
END $$;
