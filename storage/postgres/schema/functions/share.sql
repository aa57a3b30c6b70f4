-- share returns a number of the limit that each partition of a queue has: its Concurrency (1), or the N
-- (2) or the Per (3) of its Rate; 0 if there is none (Limit.Texts in storage/internal/engine).
CREATE FUNCTION {schema}.share(q int4, nth int4) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN coalesce((
		SELECT (regexp_match(CASE WHEN l.operator <> '' THEN l.operator ELSE split_part(l.declared, ';', 1) END,
			'^\d+ \d+ \d+ (\d{1,5}) (\d{1,10}) (\d{1,13})$'))[nth]::int8
		FROM {schema}.limits l WHERE l.queue = q), 0);
END $$;
