-- numbers returns the numbers of lines with a name, in the order of the arrays, and NULL for a line that
-- does not exist. Each is a lookup of its own: a join whose plan was made while there were few lines
-- reads all lines once for each name.
CREATE FUNCTION {schema}.numbers(queues int4[], states int2[], subs text[])
RETURNS int8[] LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
	RETURN ARRAY(
		SELECT (SELECT k.line FROM {schema}.lines k WHERE k.queue = u.queue AND k.state = u.state AND k.sub = u.sub)
		FROM unnest(queues, states, subs) WITH ORDINALITY AS u (queue, state, sub, nth) ORDER BY u.nth);
END $$;
