-- ring sends a wake-up for queues with the commit: the sender; "w" for work, which wakes one caller in each
-- process, "n" for other news, "c" for news that also concern runners without a free slot, or "l" for a late
-- commit; then the numbers of the queues.
CREATE FUNCTION {schema}.ring(channel text, sender text, kind text, queues int4[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..cardinality(queues) BY 500 LOOP
		PERFORM pg_notify(channel, sender || ' ' || kind || ' ' || array_to_string(queues[i:i + 499], ','));
	END LOOP;
END $$;
