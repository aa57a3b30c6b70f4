-- add is enqueue for a lone insert that waits at once, as most do: a step that takes half as long. It returns the
-- task's version. If anything is not as expected it returns 0 and has done nothing, or, if the call is no new one,
-- raises an error of its own (P0001). The commit notifies a process of the task (ring) unless sender is ''.
--
-- A setting that a function declares costs as much as one of its statements. So this function makes
-- its settings for the rest of the transaction.
CREATE FUNCTION {schema}.add(
	p_lane bytea, p_opened int8, p_seq int8, p_queue int4, p_id bytea, p_priority int2, p_mark int2,
	p_record bytea, channel text, sender text
) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	waited text := current_setting('lock_timeout');
	waits text := set_config('lock_timeout', '50ms', true);
	scans text := set_config('enable_seqscan', 'off', true);
	now int8 := {schema}.told();
	base int8 := {schema}.stamp(now, 2);
BEGIN
	IF base - now >= {setback} THEN
		RETURN 0;
	END IF;
	INSERT INTO {schema}.tasks (sort, turn, version, queue, line, flags, priority, id, lease, past, record)
	VALUES ({schema}.place(p_priority, base), base, base, p_queue, {schema}.line(p_queue, {state.waiting}),
		p_mark, p_priority, p_id, '', CASE WHEN base = now THEN '' ELSE int8send(now) END, p_record)
	ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RETURN 0;
	END IF;
	-- A statement behind the insert, which may have waited for a settle of the same id: this one sees it.
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT p_queue, d.counter, 1 FROM (VALUES ({state.waiting}), ({total.enqueued})) AS d (counter)
	WHERE NOT EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = p_queue AND e.id = p_id);
	IF NOT FOUND THEN -- the id of a kept task, which is no error to the server's log
		DELETE FROM {schema}.tasks t WHERE t.queue = p_queue AND t.id = p_id;
		RETURN 0;
	END IF;
	IF {schema}.admit(p_lane, p_opened, p_seq, base, 'a', now) <> 'n' THEN
		RAISE 'not as expected';
	END IF;
	IF sender <> '' THEN -- the commit then takes a lock of the whole server, however long that takes
		waits := set_config('lock_timeout', waited, true);
		IF {schema}.rouse(p_queue, 1, now, sender) = 0 THEN
			PERFORM pg_notify(channel, sender || ' w ' || p_queue);
		END IF;
	END IF;
	RETURN base;
END $$;
