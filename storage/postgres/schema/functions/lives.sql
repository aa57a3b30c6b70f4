-- lives reports whether a lane that was opened at a moment is in its life. It costs no call: the planner
-- inlines it. The function coalesce hides the range from the planner, which would read all lanes for it.
CREATE FUNCTION {schema}.lives(opened int8, now int8) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(opened BETWEEN now - {lanelife} AND now + {lanelife}, false)
$$;
