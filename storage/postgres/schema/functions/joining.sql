-- joining counts the tasks that join and leave the lines with a name. It makes a line that tasks join
-- where there is none (open), and keeps it from being deleted until the commit.
CREATE FUNCTION {schema}.joining(
	queues int4[], states int2[], subs text[], counts int4[], joined bool[], turns int8[], now int8, look int8,
	patient bool
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
DECLARE
	wanted int8 := cardinality(array_positions(joined, true));
	lines int8[];
	n int8;
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	FOR try IN 1..10 LOOP -- an empty line may be removed before it is locked
		lines := {schema}.numbers(queues, states, subs);
		PERFORM FROM {schema}.lines k WHERE k.line = ANY (ARRAY(
			SELECT u.line FROM unnest(lines, joined) AS u (line, joined) WHERE u.joined)) FOR KEY SHARE OF k;
		GET DIAGNOSTICS n = ROW_COUNT;
		EXIT WHEN n = wanted;
		PERFORM {schema}.open(queues, states, subs, joined, turns, now, look);
	END LOOP;
	IF n < wanted THEN
		RAISE serialization_failure USING MESSAGE = 'midge: an empty line was removed meanwhile';
	END IF;
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT u.line, u.state, u.n FROM unnest(lines, states, counts) AS u (line, state, n)
	WHERE u.line IS NOT NULL AND u.n <> 0;
END $$;
