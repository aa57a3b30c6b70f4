-- rest pauses a partition until a moment, or resumes it where that is 0. It deletes a partition that is
-- resumed and has no tasks.
CREATE FUNCTION {schema}.rest(q int4, p_sub text, p_turn int8, until int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		UPDATE {schema}.lines k SET sort = until, turn = p_turn
		WHERE k.queue = q AND k.state = {state.keyed} AND k.sub = p_sub AND (until > 0 OR k.sort > 0);
		EXIT WHEN FOUND OR until = 0;
		PERFORM {schema}.open(ARRAY[q], ARRAY[{state.keyed}]::int2[], ARRAY[p_sub], ARRAY[true], ARRAY[p_turn],
			{schema}.told(), 0);
	END LOOP;
	IF until = 0 THEN
		PERFORM {schema}.vacate(ARRAY[q], ARRAY[p_sub]);
	END IF;
END $$;
