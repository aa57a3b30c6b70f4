-- enter begins a step that the client decides: it reads the clock, reserves n versions and admits calls,
-- whose letters it returns.
CREATE FUNCTION {schema}.enter(lanes bytea[], opens int8[], seqs int8[], v "char", n int8,
	OUT now int8, OUT base int8, OUT letters text) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '2s' AS $$
BEGIN
	now := {schema}.told();
	base := {schema}.stamp(now, n);
	letters := {schema}.present(lanes, opens, seqs, array_fill(0, ARRAY[cardinality(lanes)]), base, v, now);
END $$;
