-- runners: lists the runners that are alive. It writes nothing.
--
-- KEYS  1 what runners said, 2 until when each counts as alive
-- Returns  for each, in no order: when it was last heard (µs), a space and what it said

local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')
local reply = {}
for i = 1, #ids, 500 do
  local said = redis.call('HMGET', KEYS[1], unpack(ids, i, math.min(i + 499, #ids)))
  for j = 1, math.min(500, #ids - i + 1) do
    if said[j] then reply[#reply + 1] = said[j] end
  end
end
return reply
