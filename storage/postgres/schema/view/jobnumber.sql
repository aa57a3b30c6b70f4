-- jobnumber reads a number of seven bits a byte, the lowest bits first, and returns the place of the next
-- value. Both are null if there is no number.
CREATE FUNCTION {schema}.jobnumber(b bytea, at int4, OUT value int8, OUT next int4)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	octet int4;
	sum int8 := 0;
BEGIN
	FOR i IN 0..7 LOOP -- a longer number is neither a length nor a count
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
