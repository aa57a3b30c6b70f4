-- ring sends a wake-up for queues with the commit: the sender; "w" for work, "n" for other news, "c" for news that
-- also concern runners without a free slot, or "l" for a late commit; then the numbers of the queues. All
-- processes hear it, except for work of a queue in which a process is marked as idle: then that process does. A
-- transaction of the application's may take long, and takes no mark.
CREATE FUNCTION {schema}.ring(channel text, sender text, kind text, queues int4[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	now int8 := {schema}.told();
	rest int4[] := '{}';
	q int4;
BEGIN
	FOREACH q IN ARRAY queues LOOP
		IF kind <> 'w' OR sender = '{joined}' OR {schema}.rouse(q, 1, now, sender) = 0 THEN
			rest := rest || q;
		END IF;
	END LOOP;
	FOR i IN 1..cardinality(rest) BY 500 LOOP
		PERFORM pg_notify(channel, sender || ' ' || kind || ' ' || array_to_string(rest[i:i + 499], ','));
	END LOOP;
END $$;
