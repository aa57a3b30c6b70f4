-- name notes that a claim of these queues names these kinds, once in each span.
CREATE FUNCTION {schema}.name(queues text[], kinds text[], span int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	now int8 := {schema}.told();
BEGIN
	UPDATE {schema}.lines k SET named = now WHERE k.ctid = ANY (ARRAY(
		SELECT x.ctid FROM {schema}.queues q JOIN {schema}.lines x ON x.queue = q.queue AND x.state = {state.declined}
		WHERE q.name = ANY (queues) AND (kinds = '{}' OR x.sub = ANY (kinds)) AND x.named <= now - span
		FOR NO KEY UPDATE OF x SKIP LOCKED));
END $$;
