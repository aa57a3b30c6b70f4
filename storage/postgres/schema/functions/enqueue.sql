-- enqueue carries out calls that have only plain inserts (no unique key, no cursor), if all of them
-- go as expected. Else it does nothing and returns base 0, or raises an error of its own (P0001). A clock
-- that was set back is not as expected: then the versions do not show when the tasks were made.
--
-- span is how many versions there are in all. Each call counts from base plus its offset (offs), and
-- each insert is made at base plus its own (ats). dues are moments if positive, delays if negative, and 0 for
-- inserts that wait at once. A moment is as expected only if the clock is not behind the mark, because the
-- versions alone show the outcome. dqueues, dwaiting and dscheduled are how many inserts of a queue are
-- expected to wait and to be scheduled; timed is true if some have a moment, which decides that. If low
-- and high are not empty all ids are between them, of one queue, and so close that few others can be between
-- them. rung are the queues with new work, or with a task that is now due before all others; those of them
-- that are in loud are notified with the commit, as an event of this kind (ring).
CREATE FUNCTION {schema}.enqueue(
	span int8, lanes bytea[], opens int8[], seqs int8[], offs int8[],
	queues int4[], ids bytea[], ats int8[], dues int8[], priorities int2[], marks int2[], records bytea[],
	dqueues int4[], dwaiting int4[], dscheduled int4[], timed bool, low bytea, high bytea,
	channel text, sender text, kind text, loud int4[],
	OUT base int8, OUT rung int4[]
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET lock_timeout = '50ms' AS $$
DECLARE
	now int8 := {schema}.told();
	born bytea := '';
BEGIN
	base := {schema}.stamp(now, span);
	IF base - now >= {setback} THEN
		base := 0;
		RETURN;
	ELSIF base <> now THEN
		born := int8send(now);
	END IF;
	IF timed THEN -- apart: a query in a condition is prepared even if it is not evaluated
		IF base <> now OR EXISTS (
			SELECT FROM (
				SELECT u.queue, count(*) FILTER (WHERE u.due < 0 OR u.due > base + u.at) AS n
				FROM unnest(queues, ats, dues) AS u (queue, at, due) GROUP BY u.queue
			) have JOIN unnest(dqueues, dscheduled) AS want (queue, n) ON want.queue = have.queue AND want.n <> have.n
		) THEN
			base := 0;
			RETURN;
		END IF;
	END IF;
	-- ON CONFLICT DO NOTHING would search for each id before its insert and confirm it afterwards,
	-- which costs almost as much as the insert. Here a conflict takes back all inserts.
	BEGIN
		INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
		SELECT CASE WHEN u.due < 0 THEN now + u.at - u.due WHEN u.due > base + u.at THEN u.due
				ELSE {schema}.place(u.priority, base + u.at) END,
			base + u.at, base + u.at, u.queue,
			{schema}.line(u.queue, CASE WHEN u.due < 0 OR u.due > base + u.at THEN {state.scheduled}
				ELSE {state.waiting} END),
			u.mark, u.priority, u.id, '', born, u.record
		FROM unnest(queues, ids, ats, dues, priorities, marks, records)
			AS u (queue, id, at, due, priority, mark, record);
		IF (low = '' OR EXISTS (
			SELECT FROM {schema}.ended e WHERE e.queue = queues[1] AND e.id >= low AND e.id <= high
		)) AND {schema}.kept(queues, ids) THEN
			RAISE unique_violation;
		END IF;
	EXCEPTION WHEN unique_violation THEN
		base := 0;
		RETURN;
	END;
	IF ltrim({schema}.present(lanes, opens, seqs, offs, base, 'a', now), 'n') <> '' THEN
		-- A repeat of a call whose tasks have gone. Lanes of other calls may have been admitted by
		-- now. The error rolls all of them back, so that none remembers a call that did not happen.
		RAISE 'a call is repeated, after its tasks have ended';
	END IF;
	PERFORM {schema}.passed(d.queue, c.n, 0, c.state, {total.enqueued}) FROM unnest(dqueues, dwaiting, dscheduled)
		AS d (queue, w, s), LATERAL (VALUES ({state.waiting}, d.w), ({state.scheduled}, d.s)) AS c (state, n) WHERE c.n > 0;
	IF dscheduled = array_fill(0, ARRAY[cardinality(dqueues)]) THEN
		rung := dqueues;
	ELSE
		rung := {schema}.concerned(queues, ats, dues, dqueues, dwaiting, now);
	END IF;
	IF cardinality(loud) > 0 AND rung && loud THEN
		PERFORM {schema}.ring(channel, sender, kind, ARRAY(SELECT unnest(rung) INTERSECT SELECT unnest(loud)));
	END IF;
END $$;
