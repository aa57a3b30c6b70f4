-- register: notes that queues are in use. Its first write frees, for a settle with
-- follow-ups must find room on a full Redis.
--
-- KEYS  1 names of all queues, 2 when each was last in use
-- ARGV  queue names
-- Returns  for each "1" where it was not on the list, else "0", and when it is in use: a moment
--       of its own, by which forget.lua knows whether it was since

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZCARD', KEYS[1])
local last = redis.call('HMGET', KEYS[2], unpack(ARGV))
local freed = redis.pcall('HDEL', KEYS[2], '')
if type(freed) == 'table' and freed.err then return refusal(freed) end
local reply = {}
for i = 1, #ARGV do
  local at = string.format('%.0f', now)
  if at == last[i] then at = string.format('%.0f', now + 1) end
  reply[i] = redis.call('ZADD', KEYS[1], 0, ARGV[i]) .. at
  redis.call('HSET', KEYS[2], ARGV[i], at)
end
return reply
