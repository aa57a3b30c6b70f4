-- name notes that a claim of these queues names these kinds, once in each span. It waits a moment for a
-- line that another step has locked, as fold does, since no claim may come before the tasks of the line die.
CREATE FUNCTION {schema}.name(queues text[], kinds text[], span int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	now int8 := {schema}.told();
	numbers int8[] := ARRAY(
		SELECT x.line
		FROM {schema}.queues q JOIN {schema}.lines x ON x.queue = q.queue AND x.state = {state.declined}
		WHERE q.name = ANY (queues) AND (kinds = '{}' OR x.sub = ANY (kinds)) AND x.named <= now - span);
	waited text := current_setting('lock_timeout');
BEGIN
	IF numbers = '{}' THEN
		RETURN;
	END IF;
	PERFORM set_config('lock_timeout', '500ms', true);
	BEGIN
		UPDATE {schema}.lines k SET named = now WHERE k.line = ANY (numbers);
	EXCEPTION WHEN lock_not_available THEN -- the next claim names them
		UPDATE {schema}.lines k SET named = now WHERE k.line = ANY (ARRAY(
			SELECT x.line FROM {schema}.lines x WHERE x.line = ANY (numbers) FOR NO KEY UPDATE SKIP LOCKED));
	END;
	PERFORM set_config('lock_timeout', waited, true);
END $$;
