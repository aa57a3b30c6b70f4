-- forget: takes a queue off the list, unless it was used recently.
--
-- KEYS  1 names of all queues, 2 when each was last used
-- ARGV  1 queue name, 2 for how long it must not have been used (µs), or "=" and the time at which it
--       must have been used last, or "" if it makes no difference
-- Returns  1 if the queue was taken off, else 0

local t = redis.call('TIME')
local last = redis.call('HGET', KEYS[2], ARGV[1]) or '0'
if string.sub(ARGV[2], 1, 1) == '=' then
  if '=' .. last ~= ARGV[2] then return 0 end
elseif ARGV[2] ~= '' and t[1] * 1000000 + t[2] - (sane(last) or 0) < tonumber(ARGV[2]) then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
