-- runners: lists the runners that are alive, or their ids alone. It writes nothing.
--
-- KEYS  1 heartbeats of the runners, 2 until when each counts as alive (beat.lua)
-- ARGV  1 "ids" for the ids
-- Returns  the ids, or for each runner, in no order: the time of its last heartbeat (µs), a space, its last call, a
--       space, and its heartbeat in JSON

local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')
if ARGV[1] == 'ids' then return ids end
local reply = {}
for i = 1, #ids, 500 do
  local said = redis.call('HMGET', KEYS[1], unpack(ids, i, math.min(i + 499, #ids)))
  for j = 1, math.min(500, #ids - i + 1) do
    if said[j] then reply[#reply + 1] = said[j] end
  end
end
return reply
