-- runners: lists the runners that are alive, or their ids alone. It writes nothing.
--
-- KEYS  1 heartbeats of the runners, 2 until when each counts as alive (beat.lua)
-- ARGV  1 "ids" for the ids
-- Returns  the ids, or for each runner, in no order: the time of its last heartbeat (µs), a space, its last call, a
--       space, and its heartbeat in JSON; its schedules in JSON; its vitals ("" for none)

local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')
if ARGV[1] == 'ids' then return ids end
local reply = {}
for i = 1, #ids, 500 do
  local fields = {}
  for j = i, math.min(i + 499, #ids) do
    for _, part in ipairs({'', ' s', ' v'}) do fields[#fields + 1] = ids[j] .. part end
  end
  local said = redis.call('HMGET', KEYS[1], unpack(fields))
  for j = 1, #fields do reply[#reply + 1] = said[j] or '' end
end
return reply
