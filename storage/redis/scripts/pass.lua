-- pass: wakes a process if work waits in a queue, in place of a process that could not take it, or because
-- a process waits that no claim has marked as idle.
--
-- KEYS  meta, waiting, line, idle, ring
-- ARGV  1 the process to mark as idle first if there is such a queue, "" for none

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if ARGV[1] ~= '' and redis.call('EXISTS', KEYS[META]) == 1 then
  redis.call('ZADD', KEYS[IDLE], string.format('%.0f', now), ARGV[1])
end
if redis.call('LLEN', KEYS[LINE]) + redis.call('ZCARD', KEYS[WAITING]) + redis.call('ZCOUNT', KEYS[RING], '-inf', '(0') > 0 then
  rouse(KEYS[IDLE], KEYS[META], 1, now)
end
