-- Puts tasks that were set aside back into their lists. It begins with the task that was taken last, so that
-- pending tasks keep their order.
--
-- KEYS: pending, scheduled, retry, archived, left
-- ARGV: how many tasks to put back at most
-- Returns how many tasks were put back.
local sets = {s = KEYS[2], r = KEYS[3], a = KEYS[4]}
for n = 1, tonumber(ARGV[1]) do
	local entry = redis.call('RPOP', KEYS[5])
	if not entry then
		return n - 1
	end
	local list, score, id = string.match(entry, '^(%a) (%S+) (.*)$')
	if list == 'p' then
		redis.call('RPUSH', KEYS[1], id)
	else
		redis.call('ZADD', sets[list], score, id)
	end
end
return tonumber(ARGV[1])
