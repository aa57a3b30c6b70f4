-- jobnumber reads a number of seven bits a byte, the lowest first, and says where the next begins;
-- both are null where there is none.
CREATE FUNCTION {schema}.jobnumber(b bytea, at int4, OUT value int8, OUT next int4)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	octet int4;
	sum int8 := 0;
BEGIN
	FOR i IN 0..7 LOOP -- larger ones are no lengths, and counts of nothing
		EXIT WHEN at + i >= octet_length(b);
		octet := get_byte(b, at + i);
		sum := sum + ((octet & 127)::int8 << 7 * i);
		IF octet < 128 THEN
			value := sum;
			next := at + i + 1;
			RETURN;
		END IF;
	END LOOP;
END $$;
