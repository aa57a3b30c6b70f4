-- since returns when the oldest of the tasks joined the tail of their partition that are first there
-- with the priority of the first task, of the first {mostaged} partitions in the ring of a queue; null
-- if there is none.
CREATE FUNCTION {schema}.since(q int4) RETURNS int8 LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
	SELECT min(t.sort - {schema}.place(f.priority, 0)) FROM (
		SELECT k.line FROM {schema}.lines k WHERE k.queue + 0 = q AND k.state = {state.keyed}
			AND (k.sort > 0 OR EXISTS (SELECT FROM {schema}.tasks x WHERE x.line = k.line OFFSET 0))
		ORDER BY k.sort, k.turn LIMIT {mostaged}
	) k, LATERAL (
		SELECT x.priority FROM {schema}.tasks x WHERE x.line = k.line ORDER BY x.sort LIMIT 1
	) f, LATERAL (
		SELECT x.sort FROM {schema}.tasks x WHERE x.line = k.line AND x.sort > {schema}.place(f.priority, 0)
			AND x.sort < {schema}.place(f.priority, {halfband}) ORDER BY x.sort LIMIT 1
	) t
$$;
