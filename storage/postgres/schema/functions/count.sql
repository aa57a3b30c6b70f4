-- count notes how many inserts into queues wait and how many are scheduled.
CREATE FUNCTION {schema}.count(queues int4[], waiting int4[], scheduled int4[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.deltas (queue, counter, n)
	SELECT d.queue, c.counter, c.n FROM unnest(queues, waiting, scheduled) AS d (queue, w, s), LATERAL (
		VALUES ({state.waiting}, d.w), ({state.scheduled}, d.s), ({total.enqueued}, d.w + d.s)
	) AS c (counter, n) WHERE c.n <> 0;
END $$;
