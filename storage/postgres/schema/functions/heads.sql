-- heads gives the places of the first tasks of a line, up to most. With free it gives only tasks that
-- nobody has locked: it locks them, and an error that it catches releases the locks at once.
CREATE FUNCTION {schema}.heads(l int8, most int8, free bool) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
	cs tid[];
BEGIN
	IF free THEN
		cs := ARRAY(SELECT t.ctid FROM {schema}.tasks t WHERE t.line = l AND t.flags & {newer} = 0
			ORDER BY t.sort LIMIT most FOR UPDATE SKIP LOCKED);
		RAISE 'let go';
	END IF;
	RETURN ARRAY(SELECT t.ctid FROM {schema}.tasks t WHERE t.line = l AND t.flags & {newer} = 0
		ORDER BY t.sort LIMIT most);
EXCEPTION WHEN raise_exception THEN
	RETURN cs;
END $$;
