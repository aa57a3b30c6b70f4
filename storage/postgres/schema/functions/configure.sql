-- configure pauses or resumes a queue unless paused is null, or removes it. If p_partition is not '' it
-- pauses or resumes that partition of the queue instead, whose turn then is p_turn, or sets its own limit
-- to the text p_own, '' to clear it, unless that is null. It creates the queue if
-- there is none if makes is set. It locks the limit of the queue and returns its parts, '' for none: the client
-- changes them, and calls bound.
-- done is false if the queue to be removed holds a record. The function scans all deltas, which
-- have no index, and the planner takes a scan that is turned off for so expensive that it would
-- compile the plan: jit is off. A removal keeps fold away first, because fold locks deltas and then
-- the queue, and a removal the other way round.
CREATE FUNCTION {schema}.configure(
	p_name text, p_paused bool, p_for int8, p_remove bool, p_makes bool, p_partition text, p_turn int8, p_own text,
	OUT done bool, OUT number int4, OUT operator text, OUT declared text, OUT starts bytea
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
	done := true;
	IF p_remove THEN
		PERFORM pg_advisory_xact_lock(hashtext('{schema}.fold'));
	END IF;
	SELECT q.queue INTO number FROM {schema}.queues q WHERE q.name = p_name FOR UPDATE;
	IF NOT FOUND THEN
		IF NOT p_makes THEN
			RETURN; -- there is no queue to change
		END IF;
		INSERT INTO {schema}.queues (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING;
		SELECT q.queue INTO number FROM {schema}.queues q WHERE q.name = p_name FOR UPDATE;
	END IF;
	IF p_remove THEN
		-- One statement, which sees one moment: rows inserted meanwhile stay whole. The empty lines of
		-- kinds stay too, as a task may join one meanwhile; abandon deletes them.
		WITH e AS MATERIALIZED (
			SELECT NOT EXISTS (SELECT FROM {schema}.tasks t
					WHERE t.queue = number AND {schema}.state(t.line) <> {state.damaged})
				AND NOT EXISTS (SELECT FROM {schema}.ended e WHERE e.queue = number) AS empty
		), damaged AS (
			DELETE FROM {schema}.tasks t USING e
			WHERE e.empty AND t.queue = number AND {schema}.state(t.line) = {state.damaged}
		), beside AS (
			DELETE FROM {schema}.sides s USING e WHERE e.empty AND s.queue = number
		), held AS ( -- a key that is taken meanwhile is at another place
			DELETE FROM {schema}.keys k USING e, (SELECT x.ctid AS c FROM {schema}.keys x WHERE x.queue = number) x
			WHERE e.empty AND k.ctid = x.c
		), counted AS (
			DELETE FROM {schema}.deltas d USING e WHERE e.empty AND d.queue = number
		), bounds AS (
			DELETE FROM {schema}.limits l USING e WHERE e.empty AND l.queue = number
		)
		UPDATE {schema}.queues q SET hidden = true, paused = false, paused_until = 0, limited = false, touched = {schema}.told(),
			counters = DEFAULT
		FROM e WHERE e.empty AND q.queue = number;
		done := FOUND;
		IF done THEN
			UPDATE {schema}.lines k SET sort = 0, paused = 0, rest = 0, starts = '', own = ''
			WHERE k.queue = number AND k.state = {state.keyed} AND (k.sort > 0 OR k.starts <> '' OR k.own <> '');
			PERFORM {schema}.vacate(array_agg(k.queue), array_agg(k.sub)) FROM {schema}.lines k
			WHERE k.queue = number AND k.state = {state.keyed} HAVING count(*) > 0;
		END IF;
		RETURN;
	END IF;
	UPDATE {schema}.queues q SET hidden = q.hidden AND NOT p_makes, touched = {schema}.told() WHERE q.queue = number;
	IF p_own IS NOT NULL THEN
		PERFORM FROM {schema}.limits l WHERE l.queue = number FOR UPDATE; -- claims that began before have ended
		PERFORM {schema}.own(number, p_partition, p_turn, p_own);
		RETURN;
	END IF;
	IF p_partition <> '' THEN
		PERFORM {schema}.pause(number, p_partition, p_turn, CASE WHEN NOT p_paused THEN 0
			WHEN p_for > 0 THEN {schema}.told() + p_for ELSE 9223372036854775807 END);
		RETURN;
	END IF;
	UPDATE {schema}.queues q SET paused = p_paused,
		paused_until = CASE WHEN p_for > 0 THEN {schema}.told() + p_for ELSE 0 END
	WHERE q.queue = number AND p_paused IS NOT NULL;
	SELECT l.operator, l.declared, l.starts INTO operator, declared, starts
	FROM {schema}.limits l WHERE l.queue = number FOR UPDATE;
END $$;
