-- free releases unique keys that these tasks hold for their life.
CREATE FUNCTION {schema}.free(queues int4[], wanted text[], ids bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM {schema}.keys k USING (
		SELECT u.id, (SELECT x.ctid FROM {schema}.keys x WHERE x.queue = u.queue AND x.key = u.key) AS c
		FROM unnest(queues, wanted, ids) AS u (queue, key, id) OFFSET 0
	) u WHERE k.ctid = u.c AND k.id = u.id AND k.until = 0;
END $$;
