-- rest puts a partition to rest until a moment, unless it rests for longer. The key '' stands for the
-- tasks without a partition.
CREATE FUNCTION {schema}.rest(q int4, p_sub text, p_turn int8, until int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '2s' AS $$
DECLARE
	keyed int2 := {state.keyed}; -- a variable, so that the planner takes the key of lines
BEGIN
	LOOP
		UPDATE {schema}.lines k SET rest = greatest(k.rest, until), sort = greatest(k.paused, k.rest, until), turn = p_turn,
			turn_left = 0
		WHERE k.queue = q AND k.state = keyed AND k.sub = p_sub;
		EXIT WHEN FOUND;
		PERFORM {schema}.open(ARRAY[q], ARRAY[keyed], ARRAY[p_sub], ARRAY[true], ARRAY[p_turn],
			{schema}.told(), 0);
	END LOOP;
END $$;
