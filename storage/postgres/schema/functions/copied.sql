-- copied ends a large enqueue, whose rows were copied into tasks with versions from base on. It works
-- like enqueue, and firsts has the moments at which the first scheduled task of each queue is due. It raises
-- an error of its own (P0001) if something is not as expected. The client passes the ids only if they are
-- not close.
CREATE FUNCTION {schema}.copied(
	base int8, lanes bytea[], opens int8[], seqs int8[], offs int8[], queues int4[], ids bytea[], low bytea,
	high bytea, dqueues int4[], dwaiting int4[], dscheduled int4[], firsts int8[],
	channel text, sender text, kind text, loud int4[]
) RETURNS int4[] LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	now int8 := {schema}.told(); -- later than the rows: a task that was due meanwhile may have been claimed
	rung int4[];
BEGIN
	IF low = '' AND {schema}.kept(queues, ids) OR low <> '' AND EXISTS (
		SELECT FROM {schema}.ended e WHERE e.queue = dqueues[1] AND e.id >= low AND e.id <= high
			AND (SELECT true FROM {schema}.tasks t WHERE t.queue = e.queue AND t.id = e.id)
	) THEN
		RAISE 'an id is that of a task which has ended';
	END IF;
	IF ltrim({schema}.present(lanes, opens, seqs, offs, base, 'a', now), 'n') <> '' THEN
		RAISE 'a call is repeated, after its tasks have ended';
	END IF;
	PERFORM {schema}.passed(d.queue, c.n, 0, c.state, {total.enqueued}) FROM unnest(dqueues, dwaiting, dscheduled)
		AS d (queue, w, s), LATERAL (VALUES ({state.waiting}, d.w), ({state.scheduled}, d.s)) AS c (state, n) WHERE c.n > 0;
	rung := ARRAY(
		SELECT d.queue FROM unnest(dqueues, dwaiting, firsts) AS d (queue, w, first)
		WHERE d.w > 0 OR d.first <= now OR {schema}.soonest(d.queue, now) >= d.first);
	IF cardinality(loud) > 0 AND rung && loud THEN
		PERFORM {schema}.ring(channel, sender, kind, ARRAY(SELECT unnest(rung) INTERSECT SELECT unnest(loud)));
	END IF;
	RETURN rung;
END $$;
