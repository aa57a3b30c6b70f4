-- enter begins a step that the client decides: it reads the clock, admits calls and reserves n
-- versions.
CREATE FUNCTION {schema}.enter(lanes bytea[], opens int8[], seqs int8[], v "char", n int8,
	OUT now int8, OUT base int8, OUT admitted bytea[]) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '2s' AS $$
BEGIN
	now := {schema}.told();
	base := {schema}.stamp(now, n);
	IF cardinality(lanes) > 0 THEN
		admitted := ARRAY(SELECT {schema}.admit(lanes, opens, seqs,
			array_fill(base, ARRAY[cardinality(lanes)]), v, now));
	END IF;
END $$;
