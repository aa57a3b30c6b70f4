-- opened begins a large enqueue: it reserves its versions and returns the first. It returns 0 if one
-- of the ids is taken, if the clock was set back, and if some inserts name a due moment (timed)
-- and the clock is behind the mark.
CREATE FUNCTION {schema}.opened(span int8, queues int4[], ids bytea[], timed bool, OUT base int8, OUT now int8)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	base := 0;
	now := {schema}.told();
	PERFORM FROM unnest(queues, ids) AS u (queue, id)
	WHERE (SELECT true FROM {schema}.tasks t WHERE t.queue = u.queue AND t.id = u.id) LIMIT 1;
	IF NOT FOUND THEN
		base := {schema}.stamp(now, span);
	END IF;
	IF base - now >= {setback} OR timed AND base <> now THEN
		base := 0;
	END IF;
END $$;
