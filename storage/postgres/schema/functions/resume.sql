-- resume puts up to {maxrest} partitions of a queue whose moment has come where they belong then
-- (arrange), behind the turns that the claim has given already, and returns how many there were.
CREATE FUNCTION {schema}.resume(q int4, now int8, given int4, come int8) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	numbers int8[];
BEGIN
	IF NOT EXISTS (SELECT FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come) THEN
		RETURN 0;
	END IF;
	numbers := ARRAY(
		SELECT k.line FROM {schema}.lines k
		WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come
		ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE SKIP LOCKED);
	PERFORM {schema}.arrange(numbers, {schema}.stamp(now, given + {maxrest} + 1) + given, come);
	RETURN cardinality(numbers);
END $$;
