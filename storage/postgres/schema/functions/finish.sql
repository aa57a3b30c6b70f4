-- finish carries out calls that have only completions and plain inserts, if all of them go as
-- expected. Else it does nothing and returns base 0. ends, endids, versions and tokens are the
-- completions, sorted by queue and id; they have no offsets of their own here.
CREATE FUNCTION {schema}.finish(
	span int8, lanes bytea[], opens int8[], seqs int8[], offs int8[],
	queues int4[], ids bytea[], ats int8[], dues int8[], priorities int2[], marks int2[], records bytea[],
	dqueues int4[], dwaiting int4[], dscheduled int4[], timed bool, low bytea, high bytea,
	channel text, sender text, kind text, loud int4[],
	ends int4[], endids bytea[], versions int8[], tokens bytea[],
	OUT base int8, OUT rung int4[]
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET lock_timeout = '50ms' AS $$
DECLARE
	n int4;
	counted int4[];
	subs text[];
	now int8;
BEGIN
	-- Each row is looked up by its id, whatever the planner believes. Given the ids as a list, or
	-- equal queues, it would read a table that it takes for empty from end to end, with all the dead
	-- rows there. It expects these comparisons to find many rows, enough to compile the plan: jit is
	-- off.
	WITH gone AS (
		DELETE FROM {schema}.tasks t USING unnest(ends, endids, versions, tokens) AS u (queue, id, version, token)
		WHERE t.queue = ANY (ARRAY[u.queue]) AND t.id >= u.id AND t.id <= u.id
			AND t.version = u.version AND {schema}.state(t.line) = {state.pending} AND t.flags & 1 = 0
			AND substr(t.lease, 1, 16) = u.token
		RETURNING t.queue, t.partition, t.flags
	)
	SELECT count(*), array_agg(g.queue) FILTER (WHERE g.flags & 32 > 0), array_agg(g.partition) FILTER (WHERE g.flags & 32 > 0)
	INTO n, counted, subs FROM gone g;
	IF n <> cardinality(ends) THEN
		RAISE 'not as expected';
	END IF;
	IF ends[1] = ends[n] THEN
		PERFORM {schema}.passed(ends[1], n, {state.pending}, 0, {total.completed});
	ELSE
		PERFORM {schema}.passed(e.queue, e.n, {state.pending}, 0, {total.completed})
		FROM (SELECT u.queue, count(*)::int4 AS n FROM unnest(ends) AS u (queue) GROUP BY u.queue) e;
	END IF;
	IF cardinality(ids) > 0 THEN
		SELECT e.base, e.rung INTO base, rung FROM {schema}.enqueue(span, lanes, opens, seqs, offs, queues, ids,
			ats, dues, priorities, marks, records, dqueues, dwaiting, dscheduled, timed, low, high, channel, sender,
			kind, loud) e;
	ELSE
		now := {schema}.told();
		base := {schema}.stamp(now, span);
		IF ltrim({schema}.present(lanes, opens, seqs, offs, base, 'a', now), 'n') <> '' THEN
			base := 0;
		END IF;
	END IF;
	IF base = 0 THEN
		RAISE 'not as expected';
	END IF;
	IF counted IS NOT NULL THEN
		PERFORM {schema}.vacate(counted, subs);
	END IF;
EXCEPTION WHEN raise_exception OR lock_not_available THEN
	base := 0;
	rung := NULL;
END $$;
