-- joining counts the tasks that join and leave the lines with a name. It makes a line that tasks join if
-- there is none, and puts a partition that waits without tasks where it belongs with tasks (open). It keeps
-- the line until the commit from being deleted, and a partition from being put out of the way.
CREATE FUNCTION {schema}.joining(
	queues int4[], states int2[], subs text[], counts int4[], joined bool[], turns int8[], now int8, look int8,
	patient bool
) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET lock_timeout = '50ms' AS $$
DECLARE
	wanted int8 := cardinality(array_positions(joined, true));
	lines int8[];
	joins int8[]; -- the lines that tasks join
	waits int8[]; -- the partitions that wait for something else than the ends of their pauses and rests
	n int8;
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	FOR try IN 1..10 LOOP -- an empty line may be removed before it is locked
		lines := {schema}.numbers(queues, states, subs);
		joins := ARRAY(SELECT u.line FROM unnest(lines, joined) AS u (line, joined) WHERE u.joined);
		PERFORM FROM {schema}.lines k WHERE k.line = ANY (joins) FOR KEY SHARE OF k;
		GET DIAGNOSTICS n = ROW_COUNT;
		EXIT WHEN n = wanted;
		PERFORM {schema}.open(queues, states, subs, joined, turns, now, look);
	END LOOP;
	IF n < wanted THEN
		RAISE serialization_failure USING MESSAGE = 'midge: an empty line was removed meanwhile';
	END IF;
	-- A statement of its own: the lock returns a row as it was before a transaction that has put the partition
	-- out of the way meanwhile. Nobody does so from here on.
	waits := ARRAY(SELECT k.line FROM {schema}.lines k WHERE k.line = ANY (joins) AND k.sort > greatest(k.paused, k.rest));
	IF waits <> '{}' THEN
		PERFORM {schema}.open(queues, states, subs,
			ARRAY(SELECT coalesce(u.line = ANY (waits), false) FROM unnest(lines) WITH ORDINALITY AS u (line, nth) ORDER BY u.nth),
			turns, now, look);
	END IF;
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT u.line, u.state, u.n FROM unnest(lines, states, counts) AS u (line, state, n)
	WHERE u.line IS NOT NULL AND u.n <> 0;
END $$;
