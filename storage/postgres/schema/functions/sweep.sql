-- sweep deletes some lanes that were opened before a moment.
CREATE FUNCTION {schema}.sweep(before int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	DELETE FROM {schema}.lanes WHERE ctid = ANY (ARRAY(
		SELECT l.ctid FROM {schema}.lanes l WHERE l.opened < before
		ORDER BY l.opened LIMIT 500 FOR UPDATE SKIP LOCKED));
END $$;
