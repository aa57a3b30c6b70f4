-- remains reports whether tasks of a queue wait: ordinary ones from a place on (since) or before
-- one (low), unless that is null, and where one may start, those that may only start at once, and
-- suspects where one is wanted.
CREATE FUNCTION {schema}.remains(q int4, since int8, low int8, starts bool, wanted bool) RETURNS bool
LANGUAGE plpgsql AS $$
BEGIN
	RETURN since IS NOT NULL AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 1 AND t.sort >= since)
		OR low IS NOT NULL AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 1 AND t.sort < low)
		OR starts AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 2)
		OR starts AND wanted AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 3);
END $$;
