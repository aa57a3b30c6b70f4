-- Deletes the inserted tasks of a chunk with their unique locks, and sets the other tasks aside until the
-- end of the import.
--
-- KEYS: staged, chunk, left
-- ARGV: the name of the chunk, the prefix of the keys of tasks, one text with a
--       "1" for each inserted task and a "0" for each other task
-- Returns 1, or 0 if another process has finished the chunk.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
	return 0
end
for i, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
	if string.sub(ARGV[3], i, i) == '1' then
		local id = string.match(entry, '^%a %S+ (.*)$')
		local task = ARGV[2] .. id
		local unique = redis.call('HGET', task, 'unique_key')
		if unique and redis.call('GET', unique) == id then
			redis.call('DEL', unique)
		end
		redis.call('DEL', task)
	else
		redis.call('RPUSH', KEYS[3], entry)
	end
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
