-- share returns a number of the limit that a partition has, whose own limit has the text own; '' stands for
-- the limit of all partitions of the queue. That is its Concurrency (1), the N (2) or the Per (3) of its
-- Rate, or its Weight (4); 0 if there is none (Limit.Texts in storage/internal/engine).
CREATE FUNCTION {schema}.share(q int4, own text, nth int4) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF own = '' THEN
		own := (SELECT CASE WHEN l.operator <> '' THEN l.operator ELSE split_part(l.declared, ';', 1) END
			FROM {schema}.limits l WHERE l.queue = q);
	END IF;
	RETURN coalesce((regexp_match(own,
		'^\d+ \d+ \d+ (\d{1,5}) (\d{1,10}) (\d{1,13}) (\d{1,4})$'))[nth]::int8, 0);
END $$;
