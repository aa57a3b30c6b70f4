-- name notes that a claim of these queues names these kinds, once in each span.
CREATE FUNCTION {schema}.name(queues text[], kinds text[], span int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	now int8 := {schema}.told();
BEGIN
	UPDATE {schema}.kinds k SET named = now WHERE k.ctid = ANY (ARRAY(
		SELECT x.ctid FROM {schema}.queues q JOIN {schema}.kinds x ON x.queue = q.queue
		WHERE q.name = ANY (queues) AND (kinds = '{}' OR x.kind = ANY (kinds)) AND x.named <= now - span
		FOR NO KEY UPDATE OF x SKIP LOCKED));
END $$;
