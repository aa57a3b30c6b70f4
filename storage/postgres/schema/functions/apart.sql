-- apart sets a record that cannot be read apart, and counts it. A record that stands in a line of
-- another queue than its own is searched for along the lines.
CREATE FUNCTION {schema}.apart(q int4, i bytea) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	c tid;
	was int8;
BEGIN
	SELECT t.ctid, t.line INTO c, was FROM {schema}.tasks t
	WHERE t.queue = q AND t.id = i AND {schema}.state(t.line) <> {state.damaged}
		AND (t.line < 0 OR t.line = {schema}.line(q, {schema}.state(t.line))) FOR UPDATE;
	IF NOT FOUND THEN
		SELECT t.ctid, t.line INTO c, was FROM {schema}.tasks t
		WHERE t.line > {schema}.line(q, {state.none}) AND t.line < {schema}.line(q + 1, {state.none})
			AND {schema}.state(t.line) <> {state.damaged} AND t.id = i AND t.queue <> q LIMIT 1 FOR UPDATE;
	END IF;
	IF FOUND THEN
		UPDATE {schema}.tasks t SET line = {schema}.line(q, {state.damaged}), sort = {schema}.told(), flags = t.flags & ~32::int2
		WHERE t.ctid = c;
		INSERT INTO {schema}.deltas (queue, counter, n) SELECT was, {schema}.state(was), -1 WHERE was < 0;
		PERFORM {schema}.passed(q, 1, {schema}.state(was), {state.damaged},
			CASE WHEN {schema}.state(was) <> {state.cursor} THEN {total.deleted} ELSE 0 END);
	END IF;
END $$;
