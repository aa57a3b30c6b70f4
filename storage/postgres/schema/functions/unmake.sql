-- unmake deletes what this transaction has inserted at these offsets (ats).
CREATE FUNCTION {schema}.unmake(queues int4[], ids bytea[], ats int8[], base int8) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.tasks t USING (
		SELECT u.at, (SELECT x.ctid FROM {schema}.tasks x WHERE x.queue = u.queue AND x.id = u.id) AS c
		FROM unnest(queues, ids, ats) AS u (queue, id, at) OFFSET 0
	) u WHERE t.ctid = u.c AND t.version = base + u.at AND t.xmin::text = (pg_current_xact_id()::text::int8 % 4294967296)::text;
END $$;
