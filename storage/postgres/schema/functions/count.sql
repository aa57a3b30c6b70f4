-- count notes how many inserts into queues wait and how many are scheduled.
CREATE FUNCTION {schema}.count(queues int4[], waiting int4[], scheduled int4[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM {schema}.passed(d.queue, c.n, 0, c.state, {total.enqueued})
	FROM unnest(queues, waiting, scheduled) AS d (queue, w, s),
		LATERAL (VALUES ({state.waiting}, d.w), ({state.scheduled}, d.s)) AS c (state, n) WHERE c.n > 0;
END $$;
