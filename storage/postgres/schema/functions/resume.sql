-- resume puts up to {maxrest} partitions of a queue whose moment has come where they belong then
-- (arrange), behind the turns that the claim has given already, and returns how many there were. It waits
-- for fold, which locks lines for a moment, and passes over lines that are locked for longer. After the
-- clock was set back, it also ends the rests of up to {maxrest} partitions that rest because of their
-- rate for longer than a start now would let them: their starts count as made now.
CREATE FUNCTION {schema}.resume(q int4, now int8, given int4, come int8) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	per int8 := 0;
	numbers int8[] := '{}';
	long int8[];
	waited text;
BEGIN
	IF pg_sequence_last_value('{schema}.mark'::regclass) > now + {setback} THEN
		per := {schema}.share(q, 3);
	END IF;
	IF EXISTS (SELECT FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come) THEN
		waited := current_setting('lock_timeout');
		PERFORM set_config('lock_timeout', '50ms', true);
		BEGIN
			numbers := ARRAY(
				SELECT k.line FROM {schema}.lines k
				WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come
				ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE);
		EXCEPTION WHEN lock_not_available THEN
			numbers := ARRAY(
				SELECT k.line FROM {schema}.lines k
				WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > 0 AND k.sort <= come
				ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE SKIP LOCKED);
		END;
		PERFORM set_config('lock_timeout', waited, true);
	END IF;
	IF per > 0 THEN
		long := ARRAY(
			SELECT k.line FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > now + per + per / 64 + 1
				AND k.sort < 9223372036854775807 AND k.paused = 0 AND k.rest = 0
			ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE SKIP LOCKED);
		UPDATE {schema}.lines k SET starts = (
			SELECT int8send(now - now % ((per + 63) / 64) + (per + 63) / 64 - 1) || int4send(greatest(least(sum(
				('x' || encode(substr(k.starts, 12 * i + 9, 4), 'hex'))::bit(32)::int8), 1000000000), 0)::int4)
			FROM generate_series(0, octet_length(k.starts) / 12 - 1) AS s (i))
		WHERE k.line = ANY (long) AND octet_length(k.starts) >= 12;
		numbers := numbers || long;
	END IF;
	IF numbers <> '{}' THEN
		PERFORM {schema}.arrange(numbers, {schema}.stamp(now, given + 2 * {maxrest} + 1) + given, come);
	END IF;
	RETURN cardinality(numbers);
END $$;
