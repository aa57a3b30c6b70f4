-- ring sends a wake-up for queues with the commit: who sends, "w" for work or "c" for
-- what concerns those without a free slot too, then queue numbers.
CREATE FUNCTION {schema}.ring(channel text, sender text, kind text, queues int4[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..cardinality(queues) BY 500 LOOP
		PERFORM pg_notify(channel, sender || ' ' || kind || ' ' || array_to_string(queues[i:i + 499], ','));
	END LOOP;
END $$;
