-- outlook says what a claim leaves of what a queue has for a moment: when something is due next,
-- and whether something is due already (not clean). Where this claim has acted on what was due
-- more of it is to be had at once, else somebody has it locked for a while.
CREATE FUNCTION {schema}.outlook(
	q int4, now int8, come int8, since int8, due int8, acted bool, held_until int8,
	OUT next int8, OUT more bool, OUT clean bool
) LANGUAGE plpgsql AS $$
BEGIN
	next := due;
	more := false;
	clean := true;
	IF due <= come THEN -- no longer, perhaps
		next := {schema}.soonest(q, since);
		IF next <= come THEN
			more := acted;
			clean := false;
		END IF;
		IF next <= come AND NOT acted THEN -- locked
			next := now + 100000;
		END IF;
	END IF;
	IF held_until > 0 AND (next IS NULL OR held_until < next) THEN
		IF EXISTS (SELECT FROM {schema}.tasks t WHERE t.line IN (q * 16 + 1, q * 16 + 2, q * 16 + 3)) THEN
			next := held_until;
		END IF;
	END IF;
END $$;
