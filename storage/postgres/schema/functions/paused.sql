-- paused decides whether a queue is paused at a moment, by its settings. It costs no call: the planner
-- inlines it.
CREATE FUNCTION {schema}.paused(paused bool, paused_until int8, moment int8)
RETURNS bool LANGUAGE sql IMMUTABLE AS $$
	SELECT paused AND (paused_until = 0 OR paused_until > moment)
$$;
