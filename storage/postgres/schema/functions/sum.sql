-- sum adds changes to some of the counters of a queue.
CREATE FUNCTION {schema}.sum(folded int8[], counters int2[], changes int8[]) RETURNS int8[] LANGUAGE sql AS $$
	SELECT array_agg(f.n + coalesce(c.n, 0) ORDER BY f.counter)
	FROM unnest(folded) WITH ORDINALITY AS f (n, counter)
	LEFT JOIN unnest(counters, changes) AS c (counter, n) ON c.counter = f.counter
$$;
