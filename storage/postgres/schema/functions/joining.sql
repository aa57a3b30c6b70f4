-- joining counts the tasks that join and leave the lines with a name. It makes a line that tasks join
-- where there is none, and keeps it from being deleted until the commit.
CREATE FUNCTION {schema}.joining(
	queues int4[], states int2[], subs text[], counts int4[], joined bool[], now int8, look int8, patient bool
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
DECLARE
	n int8;
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	PERFORM {schema}.open(queues, states, subs, joined, now, look);
	PERFORM FROM unnest(queues, states, subs, joined) AS u (queue, state, sub, joined)
	JOIN {schema}.lines k ON k.queue = u.queue AND k.state = u.state AND k.sub = u.sub WHERE u.joined FOR KEY SHARE OF k;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n < cardinality(array_positions(joined, true)) THEN
		RAISE serialization_failure USING MESSAGE = 'midge: an empty line was removed meanwhile';
	END IF;
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT k.line, k.state, u.n FROM unnest(queues, states, subs, counts) AS u (queue, state, sub, n)
	JOIN {schema}.lines k ON k.queue = u.queue AND k.state = u.state AND k.sub = u.sub WHERE u.n <> 0;
END $$;
