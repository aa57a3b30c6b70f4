-- candidates gives the tasks from which the client chooses those of a claim: unlocked, without what
-- only their reader needs, up to so many of each queue that every claim may take (most), that only
-- start at once (starts), and that are suspects. Queues that are paused have none.
CREATE FUNCTION {schema}.candidates(names text[], most int4, starts int4, suspects int4) RETURNS TABLE (
	o_place int4, o_foreign bool, o_state int2, o_id bytea, o_version int8, o_sort int8, o_flags int2, o_size int4
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	come int8 := {schema}.come({schema}.told());
BEGIN
	RETURN QUERY
	SELECT u.n::int4, t.queue <> q.queue, s.state::int2, t.id, t.version, t.sort, t.flags, octet_length(t.record)
	FROM unnest(names) WITH ORDINALITY AS u (name, n) JOIN {schema}.queues q ON q.name = u.name
		AND NOT (q.paused AND (q.paused_until = 0 OR q.paused_until > come)),
		unnest(ARRAY[most, starts, suspects]) WITH ORDINALITY AS s (most, state), LATERAL (
			SELECT x.* FROM {schema}.tasks x WHERE x.line = q.queue * 16 + s.state AND x.flags & {newer} = 0
			ORDER BY x.sort LIMIT s.most
		) t;
END $$;
