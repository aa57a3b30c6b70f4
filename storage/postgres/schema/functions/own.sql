-- own sets the limit of one partition, or clears it if the text is '', and puts the partition where it
-- belongs then (arrange). A partition without such a limit that is to be cleared stays as it is.
CREATE FUNCTION {schema}.own(q int4, p_sub text, p_turn int8, p_own text) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	keyed int2 := {state.keyed}; -- a variable, so that the planner takes the key of lines
	rate int8 := {schema}.share(q, p_own, 2);
	number int8;
BEGIN
	LOOP
		UPDATE {schema}.lines k SET own = p_own, starts = CASE WHEN rate > 0 THEN k.starts ELSE '' END
		WHERE k.queue = q AND k.state = keyed AND k.sub = p_sub AND (p_own <> '' OR k.own <> '') RETURNING k.line INTO number;
		EXIT WHEN FOUND OR p_own = '';
		PERFORM {schema}.open(ARRAY[q], ARRAY[keyed], ARRAY[p_sub], ARRAY[true], ARRAY[p_turn], {schema}.told(), 0);
	END LOOP;
	PERFORM {schema}.arrange(ARRAY[number], p_turn, 0);
END $$;
