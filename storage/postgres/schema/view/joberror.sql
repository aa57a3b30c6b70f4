-- joberror returns the last error of a task's history (JSON), null if there is none. Bytes that are
-- not JSON raise one of many errors, none of which may reach the reader.
CREATE FUNCTION {schema}.joberror(attempts bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN (
		SELECT a.attempt ->> 'Error' FROM json_array_elements(convert_from(attempts, 'UTF8')::json)
			WITH ORDINALITY AS a (attempt, n)
		WHERE a.attempt ->> 'Error' <> '' ORDER BY a.n DESC LIMIT 1);
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END $$;
