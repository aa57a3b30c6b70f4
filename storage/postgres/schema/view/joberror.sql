-- joberror gives the last error of a task's history (JSON), null where there is none. What is no
-- JSON raises one of many errors, of which none may reach whoever reads.
CREATE FUNCTION {schema}.joberror(attempts bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN (
		SELECT a.attempt ->> 'Error' FROM json_array_elements(convert_from(attempts, 'UTF8')::json)
			WITH ORDINALITY AS a (attempt, n)
		WHERE a.attempt ->> 'Error' <> '' ORDER BY a.n DESC LIMIT 1);
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END $$;
