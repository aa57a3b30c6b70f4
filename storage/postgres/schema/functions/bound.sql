-- bound replaces the limit of a queue whose row the step has locked: '' for both texts removes it. The row
-- of a queue with partitions stays, for its turn. With loosens the first {maxturns} partitions that rest
-- because of their rate are put where they belong.
CREATE FUNCTION {schema}.bound(q int4, p_operator text, p_declared text, p_starts bytea, loosens bool)
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	has bool := p_operator <> '' OR p_declared <> '';
	resting int8[];
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
	IF loosens THEN
		resting := ARRAY(
			SELECT k.line FROM {schema}.lines k WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.own = ''
			ORDER BY k.sort, k.turn LIMIT {maxturns});
		PERFORM FROM {schema}.lines k WHERE k.line = ANY (resting) ORDER BY k.line FOR NO KEY UPDATE OF k;
		PERFORM {schema}.arrange(ARRAY(SELECT k.line FROM {schema}.lines k
			WHERE k.line = ANY (resting) AND k.paused = 0 AND k.rest = 0), {schema}.stamp({schema}.told(), {maxturns}), 0);
	END IF;
END $$;
