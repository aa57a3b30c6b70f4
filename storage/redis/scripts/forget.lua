-- forget: takes a queue off the list, unless it was in use since.
--
-- KEYS  1 names of all queues, 2 when each was last in use
-- ARGV  1 queue name, 2 for how long it must not have been in use (µs), or "=" and when it was
--       last in use
-- Returns  1 where it is gone

local t = redis.call('TIME')
local last = redis.call('HGET', KEYS[2], ARGV[1]) or '0'
if string.sub(ARGV[2], 1, 1) == '=' then
  if '=' .. last ~= ARGV[2] then return 0 end
elseif t[1] * 1000000 + t[2] - (tonumber(last) or 0) < tonumber(ARGV[2]) then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
