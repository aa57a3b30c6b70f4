-- advance promotes up to most due tasks of a queue and ends pauses of its partitions, before a step
-- recovers its leases: partitions that begin by both join the ring in this order.
CREATE FUNCTION {schema}.advance(q int4, most int4) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	now int8 := {schema}.told();
	come int8 := {schema}.come(now);
	turns int4;
BEGIN
	SELECT p.turns INTO turns FROM {schema}.promote(q, now, come, most) p;
	PERFORM {schema}.resume(q, now, turns, come);
END $$;
