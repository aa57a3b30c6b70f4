-- place returns the place of a task among the waiting tasks of its line, by its priority and its turn: the
-- priority is a band of places, and turns below 0 are turns of the head (Band in storage/internal/engine).
-- It costs no call: the planner inlines it.
CREATE FUNCTION {schema}.place(priority int4, turn int8) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$
	SELECT (({maxpriority} - priority)::int8 << 56) + turn
$$;
