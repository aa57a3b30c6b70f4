-- over returns the moment from which no start of a partition counts for its rate, 0 if none counts. own is
-- the text of its own limit. The last start is packed in the last twelve bytes, and they begin with
-- its moment.
CREATE FUNCTION {schema}.over(q int4, own text, starts bytea) RETURNS int8 LANGUAGE plpgsql STABLE AS $$
DECLARE
	per int8;
BEGIN
	IF octet_length(starts) < 12 THEN
		RETURN 0;
	END IF;
	per := {schema}.share(q, own, 3);
	RETURN CASE WHEN per = 0 THEN 0
		ELSE per + least(9007199254740991, ('x' || encode(substr(starts, octet_length(starts) - 11, 8), 'hex'))::bit(64)::int8) END;
END $$;
