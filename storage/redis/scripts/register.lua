-- register: notes that queues are in use. Its first write frees, for a settle with
-- follow-ups must find room on a full Redis.
--
-- KEYS  1 names of all queues, 2 when each was last in use
-- ARGV  queue names
-- Returns  nothing

local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
redis.call('ZCARD', KEYS[1])
redis.call('HLEN', KEYS[2])
local freed = redis.pcall('HDEL', KEYS[2], '')
if type(freed) == 'table' and freed.err then return refusal(freed) end
for i = 1, #ARGV do
  redis.call('ZADD', KEYS[1], 0, ARGV[i])
  redis.call('HSET', KEYS[2], ARGV[i], now)
end
return 1
