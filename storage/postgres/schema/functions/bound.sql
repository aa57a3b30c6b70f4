-- bound replaces the limit of a queue whose row the step has locked: '' for both texts removes it. The row
-- of a queue with partitions stays, for its turn.
CREATE FUNCTION {schema}.bound(q int4, p_operator text, p_declared text, p_starts bytea) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	has bool := p_operator <> '' OR p_declared <> '';
BEGIN
	UPDATE {schema}.queues SET limited = has WHERE queue = q AND limited <> has;
	IF has THEN
		INSERT INTO {schema}.limits (queue, operator, declared, starts) VALUES (q, p_operator, p_declared, p_starts)
		ON CONFLICT (queue) DO UPDATE SET operator = p_operator, declared = p_declared, starts = p_starts;
	ELSIF EXISTS (SELECT FROM {schema}.lines k WHERE k.queue = q AND k.state = {state.keyed}) THEN
		UPDATE {schema}.limits l SET operator = '', declared = '', starts = '' WHERE l.queue = q;
	ELSE
		DELETE FROM {schema}.limits l WHERE l.queue = q;
	END IF;
END $$;
