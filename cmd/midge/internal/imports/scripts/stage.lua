-- Takes tasks out of a queue of asynq and sets them aside as a chunk, unless a chunk is set aside
-- already. It takes nothing and fails while tasks are active or while the queue is not paused.
--
-- KEYS: pending, scheduled, retry, archived, active, paused; and the keys of the import: staged, chunk
-- ARGV: the name of a new chunk, the most tasks and bytes that it holds, the prefix of the keys of
--       tasks, "1" to take archived tasks too
-- Returns the name of the chunk, then for each task its entry and its message. An entry is the letter
-- of the task's list, a space, the task's score, a space, and the task's id.
local pending, active, paused, staged, chunk = KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local sets = {{'s', KEYS[2]}, {'r', KEYS[3]}}
if ARGV[5] == '1' then
	sets[3] = {'a', KEYS[4]}
end
local most, room, prefix = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

if redis.call('LLEN', active) > 0 then
	return redis.error_reply('MIDGEACTIVE')
end
if redis.call('EXISTS', paused) == 0 then
	return redis.error_reply('MIDGERUNNING')
end

local count = 0

-- fits reports whether the chunk has room for a task. The size of the first task does not matter.
local function fits(id)
	local size = redis.call('HSTRLEN', prefix .. id, 'msg')
	if count == most or (count > 0 and size > room) then
		return false
	end
	count, room = count + 1, room - size
	return true
end

if redis.call('EXISTS', staged) == 0 then
	local id = redis.call('LINDEX', pending, -1)
	while id and fits(id) do
		redis.call('RPOP', pending)
		redis.call('RPUSH', staged, 'p 0 ' .. id)
		id = redis.call('LINDEX', pending, -1)
	end
	for _, set in ipairs(sets) do
		local first = redis.call('ZRANGE', set[2], 0, 0, 'WITHSCORES')
		while first[1] and fits(first[1]) do
			redis.call('ZREM', set[2], first[1])
			redis.call('RPUSH', staged, set[1] .. ' ' .. first[2] .. ' ' .. first[1])
			first = redis.call('ZRANGE', set[2], 0, 0, 'WITHSCORES')
		end
	end
	if count > 0 then
		redis.call('SET', chunk, ARGV[1])
	end
end

local found = {redis.call('GET', chunk) or ''}
for _, entry in ipairs(redis.call('LRANGE', staged, 0, -1)) do
	local id = string.match(entry, '^%a %S+ (.*)$')
	found[#found + 1] = entry
	found[#found + 1] = redis.call('HGET', prefix .. id, 'msg') or ''
end
return found
