-- read returns one task with its row in sides.
CREATE FUNCTION {schema}.read(p_name text, p_id bytea) RETURNS TABLE (
	o_ended bool, o_sort int8, o_turn int8, o_version int8, o_state int2, o_flags int2, o_priority int2, o_lease bytea,
	o_past bytea, o_record bytea, o_at int8,
	o_attempts bytea, o_stack bytea, o_result bytea, o_progress bytea, o_checkpoint bytea
) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	q int4 := (SELECT k.queue FROM {schema}.queues k WHERE k.name = p_name);
	s record;
BEGIN
	SELECT k.* INTO s FROM {schema}.sides k WHERE k.queue = q AND k.id = p_id;
	RETURN QUERY
	SELECT false, t.sort, t.turn, t.version, {schema}.state(t.line), t.flags, t.priority, t.lease, t.past, t.record,
		0::int8, s.attempts, s.stack, s.result, s.progress, s.checkpoint
	FROM {schema}.tasks t WHERE t.queue = q AND t.id = p_id;
	IF NOT FOUND THEN
		RETURN QUERY
		SELECT true, e.expires, 0::int8, e.version, {schema}.state(e.line), e.flags, e.priority, ''::bytea, e.past, e.record,
			e.at, s.attempts, s.stack, s.result, s.progress, s.checkpoint
		FROM {schema}.ended e WHERE e.queue = q AND e.id = p_id;
	END IF;
END $$;
