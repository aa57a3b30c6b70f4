-- pause pauses a partition until a moment, or resumes it if that is 0.
CREATE FUNCTION {schema}.pause(q int4, p_sub text, p_turn int8, until int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	number int8;
BEGIN
	IF until = 0 THEN
		UPDATE {schema}.lines k SET paused = 0
		WHERE k.queue = q AND k.state = {state.keyed} AND k.sub = p_sub AND k.paused > 0 RETURNING k.line INTO number;
		IF FOUND THEN
			PERFORM {schema}.arrange(ARRAY[number], p_turn, 0);
		END IF;
		RETURN;
	END IF;
	LOOP
		UPDATE {schema}.lines k SET paused = until, sort = greatest(until, k.rest), turn = p_turn, turn_left = 0
		WHERE k.queue = q AND k.state = {state.keyed} AND k.sub = p_sub;
		EXIT WHEN FOUND;
		PERFORM {schema}.open(ARRAY[q], ARRAY[{state.keyed}]::int2[], ARRAY[p_sub], ARRAY[true], ARRAY[p_turn],
			{schema}.told(), 0);
	END LOOP;
END $$;
