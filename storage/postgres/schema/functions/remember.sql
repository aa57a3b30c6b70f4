-- remember keeps the outcomes of calls that were admitted.
CREATE FUNCTION {schema}.remember(lanes bytea[], outcomes bytea[]) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	UPDATE {schema}.lanes l SET outcome = u.outcome FROM (
		SELECT u.outcome, (SELECT x.ctid FROM {schema}.lanes x WHERE x.lane = u.lane) AS c
		FROM unnest(lanes, outcomes) AS u (lane, outcome) OFFSET 0
	) u WHERE l.ctid = u.c;
END $$;
