-- resting reports whether the tasks of a queue that have no partition rest at a moment.
CREATE FUNCTION {schema}.resting(q int4, moment int8) RETURNS bool LANGUAGE plpgsql STABLE AS $$
DECLARE
	keyed int2 := {state.keyed}; -- a variable, so that the planner takes the key of lines
BEGIN
	RETURN EXISTS (SELECT FROM {schema}.lines k
		WHERE k.queue = q AND k.state = keyed AND k.sub = '' AND k.rest > moment);
END $$;
