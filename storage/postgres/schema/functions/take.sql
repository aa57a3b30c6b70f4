-- take takes unique keys. A key that is held is a unique_violation.
CREATE FUNCTION {schema}.take(queues int4[], wanted text[], ids bytea[], untils int8[], now int8, patient bool)
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET lock_timeout = '50ms' AS $$
DECLARE
	n int8;
BEGIN
	IF patient THEN
		PERFORM set_config('lock_timeout', '2s', true);
	END IF;
	INSERT INTO {schema}.keys AS k (queue, key, id, until)
	SELECT u.queue, u.key, u.id, u.until FROM unnest(queues, wanted, ids, untils) AS u (queue, key, id, until)
	ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, until = excluded.until
	WHERE k.until > 0 AND k.until <= now;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n <> cardinality(queues) THEN
		RAISE unique_violation USING MESSAGE = 'midge: a unique key was taken meanwhile';
	END IF;
END $$;
