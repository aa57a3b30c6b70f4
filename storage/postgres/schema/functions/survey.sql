-- survey tells a claim what it has to know of a queue: its number, null where there is none;
-- whether it is paused and until when (no pause ends in a wait, see come); whether tasks wait
-- before a place (early), some that may only start at once (prompts) or are suspects, and whether
-- the cancel of one that runs was asked; and when a task (first) and a cursor (tick) are due next.
CREATE FUNCTION {schema}.survey(
	p_name text, come int8, low int8, since int8, OUT number int4, OUT held bool, OUT held_until int8,
	OUT early bool, OUT prompts bool, OUT suspects bool, OUT asked bool, OUT first int8, OUT tick int8
) LANGUAGE plpgsql AS $$
DECLARE
	unusual bool;
BEGIN
	SELECT q.queue, q.paused AND (q.paused_until = 0 OR q.paused_until > come), q.paused_until,
		EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = ANY (ARRAY[q.queue * 16 + 2, q.queue * 16 + 3,
			q.queue * 16 + 5])),
		EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 1 AND t.sort < low),
		least(
			(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 6 AND t.sort > since
				ORDER BY t.sort LIMIT 1),
			(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 7 AND t.sort > since
				ORDER BY t.sort LIMIT 1)),
		(SELECT t.sort FROM {schema}.tasks t WHERE t.line = q.queue * 16 + 8 AND t.sort < 9223372036854775807
			ORDER BY t.sort LIMIT 1),
		false, false, false
	INTO number, held, held_until, unusual, early, first, tick, prompts, suspects, asked
	FROM {schema}.queues q WHERE q.name = p_name;
	IF unusual THEN
		prompts := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 2);
		suspects := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 3);
		asked := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = number * 16 + 5);
	END IF;
END $$;
