-- resume puts up to {maxrest} partitions of a queue whose moment has come where they belong then
-- (arrange), behind the turns that the claim has assigned already, and returns how many there were. It waits
-- for fold, which locks lines for a moment, and passes over lines that are locked for longer. After the
-- clock was set back, it also ends the rests of up to {maxrest} partitions that rest because of their
-- rate for longer than a start now would let them: their starts count as made now.
CREATE FUNCTION {schema}.resume(q int4, now int8, given int4, come int8) RETURNS int4 LANGUAGE plpgsql AS $$
DECLARE
	per int8;
	numbers int8[] := '{}';
	long int8[];
	waited text;
BEGIN
	IF pg_sequence_last_value('{schema}.mark'::regclass) > now + {setback} THEN
		per := {schema}.share(q, '', 3);
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
	IF per IS NOT NULL THEN
		long := ARRAY(
			SELECT k.line FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.sort > now + per + per / 64 + 1
				AND k.sort < 9223372036854775807 AND k.paused = 0 AND k.rest = 0
				AND (k.own = '' OR k.sort > now + 1 + {schema}.share(q, k.own, 3) * 65 / 64)
			ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE SKIP LOCKED)
			|| ARRAY( -- the partitions whose own limit has a shorter Per than that of all
			SELECT k.line FROM {schema}.lines k
			WHERE k.queue + 0 = q AND k.state = {state.keyed} AND k.own <> '' AND k.sort > now + 1
				AND k.sort <= now + per + per / 64 + 1 AND k.paused = 0 AND k.rest = 0
				AND k.sort > now + 1 + {schema}.share(q, k.own, 3) * 65 / 64
			ORDER BY k.sort, k.turn LIMIT {maxrest} FOR NO KEY UPDATE SKIP LOCKED);
		UPDATE {schema}.lines k SET starts = (
			SELECT int8send(now - now % x.width + x.width - 1) || int4send(greatest(least(sum(
				('x' || encode(substr(k.starts, 12 * i + 9, 4), 'hex'))::bit(32)::int8), 1000000000), 0)::int4)
			FROM generate_series(0, octet_length(k.starts) / 12 - 1) AS s (i))
		FROM (
			SELECT z.ctid AS c, ({schema}.share(q, z.own, 3) + 63) / 64 AS width FROM {schema}.lines z
			WHERE z.line = ANY (long) AND octet_length(z.starts) >= 12 OFFSET 0
		) x WHERE k.ctid = x.c AND x.width > 0;
		numbers := numbers || long;
	END IF;
	IF numbers <> '{}' THEN
		PERFORM {schema}.arrange(numbers, {schema}.stamp(now, given + 2 * {maxrest} + 1) + given, come);
	END IF;
	RETURN cardinality(numbers);
END $$;
