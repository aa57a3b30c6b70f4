-- wait: writes and changes nothing. WAIT waits for the last write of its own connection, and a repeated call
-- whose outcome is remembered writes nothing else. The first write frees memory, after which a full Redis
-- refuses none.
--
-- KEYS  1 a key that does not exist, in the slot of the calls before it

redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'a', 'b')
return redis.call('DEL', KEYS[1])
