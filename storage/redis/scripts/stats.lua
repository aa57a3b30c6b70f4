-- stats: reads sizes and totals of queues. It writes nothing.
--
-- KEYS  the keys of each queue (keys.go), queue after queue
-- ARGV  1 queues
-- Returns  {now, then for each queue: waiting, pending, scheduled, retry, completed,
--       cancelled, dead, cursors, damaged, paused, and the totals in the order of FIELDS}

local queues = openall(tonumber(ARGV[1]))
local reply = {text(now)}
for _, q in ipairs(queues) do
  local function size(st) return call('ZCARD', q[SETS[st]]) end
  local v = {size('w') + size('z') + lined(q), math.max(call('HLEN', q[PENDING]) - 1, 0), size('s'), size('r'), size('c'), size('x'), size('d'),
    size('u'), call('HLEN', q[DAMAGED]), text(q.m.paused)}
  for i = 11, #FIELDS do v[#v + 1] = text(q.m[FIELDS[i]]) end
  for _, n in ipairs(v) do reply[#reply + 1] = n end
end
return reply
