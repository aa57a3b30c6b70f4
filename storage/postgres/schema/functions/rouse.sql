-- rouse wakes up to n processes that wait for work of a queue, the last marked first, and removes their
-- marks. It returns how many it woke. Each process listens to a channel of its own.
CREATE FUNCTION {schema}.rouse(q int4, n int4, now int8, sender text) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	woken int4;
BEGIN
	WITH taken AS (
		DELETE FROM {schema}.idle i WHERE i.ctid = ANY (ARRAY(
			SELECT x.ctid FROM {schema}.idle x WHERE x.queue = q AND x.at > now - {markfor}
			ORDER BY x.at DESC LIMIT n FOR UPDATE SKIP LOCKED
		)) RETURNING i.process
	)
	SELECT count(pg_notify('midge_' || t.process, sender || ' w ' || q)) INTO woken FROM taken t;
	RETURN woken;
END $$;
