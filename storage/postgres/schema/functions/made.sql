-- made ends the insert of tasks: if one of the ids belongs to a task that has ended, it raises a
-- unique_violation. If low and high are not empty all ids are between them, of one queue, and so close
-- that few others can be between them.
CREATE FUNCTION {schema}.made(queues int4[], ids bytea[], low bytea, high bytea) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	IF (low = '' OR EXISTS (
		SELECT FROM {schema}.ended e WHERE e.queue = queues[1] AND e.id >= low AND e.id <= high
	)) AND {schema}.kept(queues, ids) THEN
		RAISE unique_violation USING MESSAGE = 'midge: the id is taken by a task that has ended';
	END IF;
END $$;
