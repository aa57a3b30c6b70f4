-- register: puts queues on the list, as used now. Its first write frees memory, because a full Redis has
-- to accept a settle with follow-ups.
--
-- KEYS  1 names of all queues, 2 when each was last used
-- ARGV  queue names
-- Returns  for each queue "1" if it was not on the list, else "0", and the time of this use. The time
--       differs from that of the last use, so that forget.lua can decide whether the queue was used since.

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
