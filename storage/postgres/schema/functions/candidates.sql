-- candidates gives the tasks from which the client chooses those of a claim: unlocked, without what
-- only their reader needs, up to so many of each queue that every claim may take (most), that only
-- start at once (starts), and that are suspects, and as many of each sort that were declined and
-- are of some kinds. Queues that are paused have none.
CREATE FUNCTION {schema}.candidates(
	names text[], kinds text[], most int4, starts int4, suspects int4
) RETURNS TABLE (
	o_place int4, o_foreign bool, o_state int2, o_kind text, o_id bytea, o_version int8, o_sort int8, o_flags int2,
	o_size int4
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	come int8 := {schema}.come({schema}.told());
BEGIN
	RETURN QUERY
	SELECT u.n::int4, t.queue <> q.queue, (t.line & 15)::int2, l.kind, t.id, t.version, t.sort, t.flags,
		octet_length(t.record)
	FROM unnest(names) WITH ORDINALITY AS u (name, n) JOIN {schema}.queues q ON q.name = u.name
		AND NOT (q.paused AND (q.paused_until = 0 OR q.paused_until > come)),
		unnest(ARRAY[most, starts, suspects]) WITH ORDINALITY AS s (most, state), LATERAL (
			SELECT (q.queue * 16 + s.state)::int4 AS line, '' AS kind
			UNION ALL (SELECT k.line, k.kind FROM {schema}.kinds k
				WHERE k.queue = q.queue AND (kinds = '{}' OR k.kind = ANY (kinds)) ORDER BY k.kind LIMIT {maxkinds})
		) l, LATERAL (
			SELECT x.* FROM {schema}.tasks x WHERE x.line = l.line AND x.flags & {newer} = 0 AND (l.line > 0
				OR s.state = CASE WHEN x.flags & 8 > 0 THEN 3 WHEN x.flags & 4 > 0 THEN 2 ELSE 1 END)
			ORDER BY x.sort LIMIT s.most
		) t
	ORDER BY t.sort;
END $$;
