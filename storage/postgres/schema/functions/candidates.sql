-- candidates returns the tasks from which the client chooses the tasks of a claim. It locks none, and
-- leaves out their payloads. With free it also leaves out tasks that others have locked. Of each queue it returns
-- up to most tasks that every claim may take, up to starts that only start at once, and up to suspects that are
-- suspects; starts and suspects are 0 if the claim takes none. Declined tasks of the named kinds come from the
-- heads of their lines, up to most of each. Of a line no more than share are read, so that no more than some 2,000
-- are read of all lines, and ten times as many are passed over that the claim may not take. o_last is true for the
-- last task of a line if the tasks behind it were not read. Paused queues have no candidates, and neither have
-- declined tasks whose partition is paused or rests, or is refused: refusers are the places of the queues of these
-- partitions among names. If the tasks without a partition rest, only partitions have candidates.
--
-- Of the partitions that are ready, turned returns candidates, and rows without an id. o_turn is the turn
-- of the partition, and o_left is how many tasks are left of a turn that goes on. rings are the turns before
-- which no ready partition is. o_running counts the running
-- tasks of the partition of a task, up to the Concurrency of its limit, o_starts are the starts of that
-- partition, and o_own is its own limit.
CREATE FUNCTION {schema}.candidates(
	names text[], kinds text[], most int4, starts int4, suspects int4, free bool, turns int4, rings int8[],
	refusers int4[], refused text[]
) RETURNS TABLE (
	o_place int4, o_foreign bool, o_state int2, o_kind text, o_id bytea, o_version int8, o_sort int8, o_flags int2,
	o_size int4, o_last bool, o_turn int8, o_left int4, o_partition text, o_running int8, o_starts bytea, o_own text
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	come int8 := {schema}.come({schema}.told());
	keyed int2 := {state.keyed}; -- a variable, so that the planner takes the key of lines
	barred int2 := CASE WHEN starts = 0 THEN 12 WHEN suspects = 0 THEN 8 ELSE 0 END; -- flags
BEGIN
	RETURN QUERY
	WITH q AS MATERIALIZED (
		SELECT u.n::int4, q.queue, {schema}.share(q.queue, '', 1) AS concurrency FROM unnest(names) WITH ORDINALITY AS u (name, n)
		JOIN {schema}.queues q ON q.name = u.name AND NOT {schema}.paused(q.paused, q.paused_until, come)
		WHERE NOT {schema}.resting(q.queue, come)
	), l AS MATERIALIZED (
		SELECT q.n, q.queue, q.concurrency, k.line, k.kind, greatest(2000 / count(*) OVER (), 1) AS share FROM q, LATERAL (
			SELECT k.line, k.sub AS kind
			FROM {schema}.lines k, LATERAL (SELECT FROM {schema}.tasks x WHERE x.line = k.line LIMIT 1) x
			WHERE k.queue = q.queue AND k.state = {state.declined} AND (kinds = '{}' OR k.sub = ANY (kinds))
			ORDER BY k.sub LIMIT {maxkinds}
		) k
	), h AS MATERIALIZED (
		SELECT q.n, q.queue, q.concurrency, s.state::int2, '' AS kind, s.most, s.most::int8 AS share, 0::int2 AS barred,
			{schema}.heads({schema}.line(q.queue, s.state), s.most, 0::int2, NULL, '{}', 0, free) AS cs
		FROM q, (VALUES ({state.waiting}, most), ({state.prompt}, starts), ({state.suspect}, suspects)) AS s (state, most)
		UNION ALL
		SELECT l.n, l.queue, l.concurrency, {state.declined}::int2, l.kind, most, l.share, barred,
			{schema}.heads(l.line, l.share, barred, l.queue, ARRAY(
				SELECT u.key FROM unnest(refusers, refused) AS u (n, key) WHERE u.n = l.n
			), 10 * l.share, free) FROM l
	)
	SELECT h.n, t.queue <> h.queue, h.state, h.kind, t.id, t.version, t.sort, t.flags, octet_length(t.record),
		t.nth = t.final AND (t.got >= h.most OR cardinality(h.cs) >= h.share OR h.cs[cardinality(h.cs)] IS NULL),
		0::int8, 0, t.partition, t.running, coalesce(t.starts, ''), coalesce(t.own, '')
	FROM h, LATERAL (
		SELECT x.*, max(x.nth) OVER () AS final, count(*) OVER () AS got FROM (
			SELECT y.*, c.nth, p.starts, p.own, CASE WHEN y.partition <> '' THEN (SELECT count(*) FROM (
				SELECT FROM {schema}.tasks r WHERE r.queue + 0 = h.queue AND r.partition = y.partition AND r.flags & 32 > 0
				LIMIT coalesce(p.bound, h.concurrency)) r) ELSE 0 END AS running
			FROM unnest(h.cs) WITH ORDINALITY AS c (c, nth), LATERAL (
				SELECT z.* FROM {schema}.tasks z WHERE z.ctid = c.c OFFSET 0
			) y LEFT JOIN LATERAL (
				SELECT k.paused > 0 OR k.rest > 0 AS rests, k.starts, k.own,
					CASE WHEN k.own <> '' THEN {schema}.share(h.queue, k.own, 1) END AS bound FROM {schema}.lines k
				WHERE y.partition <> '' AND k.queue = h.queue AND k.state = keyed AND k.sub = y.partition OFFSET 0
			) p ON true
			WHERE y.flags & h.barred = 0 AND p.rests IS NOT TRUE ORDER BY c.nth LIMIT h.most
		) x
	) t
	ORDER BY 7;
	RETURN QUERY
	SELECT q.n, t.* FROM (
		SELECT u.n::int4, q.queue FROM unnest(names) WITH ORDINALITY AS u (name, n)
		JOIN {schema}.queues q ON q.name = u.name AND NOT {schema}.paused(q.paused, q.paused_until, come)
		WHERE EXISTS (SELECT FROM {schema}.lines k WHERE k.queue + 0 = q.queue AND k.state = {state.keyed} AND k.sort = 0
			AND k.turn >= rings[u.n] OFFSET 0)
	) q, LATERAL {schema}.turned(q.queue, rings[q.n], turns, barred, free) t;
END $$;
