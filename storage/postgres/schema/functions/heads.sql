-- heads returns the places of the first tasks of a line without the flags barred, up to most. If q is not null, it
-- also passes over tasks whose partition in this queue is paused, rests, or is one of refused. If it has passed over
-- so many that it has read most + spare tasks, and others are left, the last place is null. With free it returns
-- only tasks that nobody has locked, behind 10,000 locked ones at most, and no null: it locks these, and an error
-- that it catches releases the locks at once.
CREATE FUNCTION {schema}.heads(l int8, most int8, barred int2, q int4, refused text[], spare int8, free bool) RETURNS tid[]
LANGUAGE plpgsql AS $$
DECLARE
	keyed int2 := {state.keyed}; -- a variable, so that the planner takes the key of lines
	cs tid[];
	c tid;
	f int2;
	p text;
	locked int4 := 0;
BEGIN
	IF free THEN
		FOR c, f, p IN
			SELECT t.ctid, t.flags, t.partition FROM {schema}.tasks t WHERE t.line = l AND t.flags & {newer} = 0 ORDER BY t.sort
		LOOP
			IF f & barred <> 0 OR q IS NOT NULL AND p <> '' AND (p = ANY (refused) OR EXISTS (
				SELECT FROM {schema}.lines k WHERE k.queue = q AND k.state = keyed AND k.sub = p AND (k.paused > 0 OR k.rest > 0)
			)) THEN
				spare := spare - 1;
				EXIT WHEN spare < 0;
			ELSE
				PERFORM FROM {schema}.tasks t WHERE t.ctid = c AND t.line = l FOR UPDATE SKIP LOCKED;
				IF FOUND THEN
					cs := cs || c;
					EXIT WHEN cardinality(cs) >= most;
				ELSE
					locked := locked + 1;
					EXIT WHEN locked > 10000;
				END IF;
			END IF;
		END LOOP;
		RAISE 'let go';
	END IF;
	RETURN ARRAY(
		SELECT CASE WHEN x.nth <= most + spare THEN x.c END FROM (
			SELECT z.*, row_number() OVER () AS nth FROM (
				SELECT t.ctid AS c, t.flags, t.partition FROM {schema}.tasks t WHERE t.line = l AND t.flags & {newer} = 0
				ORDER BY t.sort LIMIT most + spare + 1
			) z
		) x WHERE x.nth > most + spare OR x.flags & barred = 0 AND (q IS NULL OR x.partition = ''
			OR x.partition <> ALL (refused) AND NOT EXISTS (
				SELECT FROM {schema}.lines k WHERE k.queue = q AND k.state = keyed AND k.sub = x.partition
					AND (k.paused > 0 OR k.rest > 0) OFFSET 0 -- so that it is looked up by its key, not among all lines
			)) LIMIT most);
EXCEPTION WHEN raise_exception THEN
	RETURN cs;
END $$;
