-- mixed locks up to most waiting tasks of a queue, in their order, where some may only start at
-- once or are suspects: of these only as many as can start, and one suspect where one is wanted.
-- It gives their places, as many as have room for their records; the bytes of these; how many it
-- saw; and whether a suspect is among them.
CREATE FUNCTION {schema}.mixed(
	q int4, most int4, starts int4, wanted bool, room int8, needed bool,
	OUT cs tid[], OUT used int8, OUT seen int4, OUT suspect bool
) LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	cs := '{}';
	used := 0;
	seen := 0;
	suspect := false;
	FOR r IN
		WITH a AS MATERIALIZED (
			SELECT t.ctid AS c, t.sort, 1 AS state, octet_length(t.record)::int8 AS size FROM {schema}.tasks t
			WHERE t.line = q * 16 + 1 AND t.flags & {newer} = 0
			ORDER BY t.sort LIMIT most FOR UPDATE SKIP LOCKED
		), b AS MATERIALIZED (
			SELECT t.ctid AS c, t.sort, 2 AS state, octet_length(t.record)::int8 AS size FROM {schema}.tasks t
			WHERE t.line = q * 16 + 2 AND t.flags & {newer} = 0
			ORDER BY t.sort LIMIT least(most, starts) FOR UPDATE SKIP LOCKED
		), s AS MATERIALIZED (
			SELECT t.ctid AS c, t.sort, 3 AS state, octet_length(t.record)::int8 AS size FROM {schema}.tasks t
			WHERE t.line = q * 16 + 3 AND t.flags & {newer} = 0 AND wanted
			ORDER BY t.sort LIMIT 1 FOR UPDATE SKIP LOCKED
		)
		SELECT x.* FROM (SELECT * FROM a UNION ALL SELECT * FROM b UNION ALL SELECT * FROM s) x
		ORDER BY x.sort
	LOOP
		EXIT WHEN cardinality(cs) = most;
		CONTINUE WHEN r.state > 1 AND cardinality(cs) >= starts;
		seen := seen + 1;
		EXIT WHEN used + r.size > room AND NOT (needed AND cardinality(cs) = 0);
		cs := cs || r.c;
		used := used + r.size;
		suspect := suspect OR r.state = 3;
	END LOOP;
END $$;
