-- plain locks up to most waiting tasks of a queue that every claim may take, in their order: first the tasks
-- before low, unless that is null, and then the tasks from since on. It returns the places of as many as have
-- room for their records (cs), the bytes of these records (used), how many tasks it saw (seen), and the last
-- place from since on, 0 for none (last).
CREATE FUNCTION {schema}.plain(
	q int4, low int8, since int8, most int4, room int8, needed bool,
	OUT cs tid[], OUT used int8, OUT seen int4, OUT last int8
) LANGUAGE plpgsql AS $$
BEGIN
	cs := '{}';
	used := 0;
	seen := 0;
	last := 0;
	IF low IS NOT NULL THEN
		SELECT coalesce(array_agg(x.c), '{}'), coalesce(sum(x.size), 0), count(*) INTO cs, used, seen
		FROM (
			SELECT t.ctid AS c, octet_length(t.record) AS size FROM {schema}.tasks t
			WHERE t.line = {schema}.line(q, {state.waiting}) AND t.sort < low AND t.flags & {newer} = 0
			ORDER BY t.sort LIMIT most FOR UPDATE SKIP LOCKED
		) x;
		IF used > room THEN
			SELECT f.cs, f.used INTO cs, used FROM {schema}.fitting(cs, room, needed) f;
		END IF;
	END IF;
	IF seen < most AND seen = cardinality(cs) THEN
		SELECT cs || coalesce(array_agg(x.c), '{}'), used + coalesce(sum(x.size), 0), seen + count(*)::int4,
			coalesce(max(x.sort), 0)
		INTO cs, used, seen, last
		FROM (
			SELECT t.ctid AS c, t.sort, octet_length(t.record) AS size FROM {schema}.tasks t
			WHERE t.line = {schema}.line(q, {state.waiting}) AND t.sort >= since AND t.flags & {newer} = 0
			ORDER BY t.sort LIMIT most - seen FOR UPDATE SKIP LOCKED
		) x;
		IF used > room THEN
			SELECT f.cs, f.used, CASE WHEN f.last >= since THEN f.last ELSE 0 END INTO cs, used, last
			FROM {schema}.fitting(cs, room, needed) f;
		END IF;
	END IF;
END $$;
