-- odd says what a queue has that few have: tasks that may only start at once, suspects,
-- and tasks that run and whose cancel was asked.
CREATE FUNCTION {schema}.odd(q int4, OUT prompt bool, OUT suspect bool, OUT asked bool) LANGUAGE plpgsql AS $$
BEGIN
	prompt := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 2);
	suspect := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 3);
	asked := EXISTS (SELECT FROM {schema}.tasks t WHERE t.line = q * 16 + 5);
END $$;
