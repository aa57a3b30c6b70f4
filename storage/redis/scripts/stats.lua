-- stats: reads sizes and totals of queues. It writes nothing. A key of another type has no
-- size, a field of meta that is no number counts nothing, and either is counted as damaged.
--
-- KEYS  the keys of each queue (keys.go), queue after queue
-- ARGV  1 queues
-- Returns  {now, then for each queue: waiting, pending, scheduled, retry, completed,
--       cancelled, dead, cursors, damaged, paused, the TOTALS in their order, and the first kinds of
--       declined tasks, each with a colon and the number of its tasks and a comma}

local damaged

local function read(command, ...)
  local v = redis.pcall(command, ...)
  if type(v) ~= 'table' or not v.err then return v end
  damaged = damaged + 1
end

local function numbers(key)
  local v, m = read('HMGET', key, unpack(FIELDS)) or {}, {}
  for i = 1, #FIELDS do
    m[FIELDS[i]] = v[i] and sane(v[i]) or 0
    if v[i] and not sane(v[i]) then damaged = damaged + 1 end
  end
  return m
end

local t = call('TIME')
local reply = {text(t[1] * 1000000 + t[2])}
for n = 0, ARGV[1] - 1 do
  damaged = 0
  local function key(i) return KEYS[n * BLOCK + i] end
  local function size(st) return read('ZCARD', key(SETS[st])) or 0 end
  local m = numbers(key(META))
  local waiting = size('w') + size('z') + size('k') + max((read('LLEN', key(LINE)) or 0) - m.void, 0)
  local v = {waiting, max((read('HLEN', key(PENDING)) or 0) - 1, 0), size('s'), size('r'), size('c'), size('x'),
    size('d'), size('u')}
  for _, i in ipairs({TASKS, SIDE, UNIQUE, CLAIMS}) do read('HLEN', key(i)) end
  for _, i in ipairs({LEASES, WINDOWS, VOIDS}) do read('ZCARD', key(i)) end
  v[9] = (read('HLEN', key(DAMAGED)) or 0) + damaged
  v[10] = text(m.paused)
  for i = 1, #TOTALS do v[10 + i] = text(m[TOTALS[i]]) end
  local kinds = {}
  if size('k') > 0 then
    for i, kind in ipairs(kindsof(key(DECLINED), nil, STATSKINDS)) do
      local line = read('HGET', key(SIDE), 'k:' .. kind)
      kinds[i] = kind .. ':' .. (line and tonumber(sub(line, PLACE + 1)) or 0) .. ','
    end
  end
  v[#v + 1] = table.concat(kinds)
  for i = 1, #v do reply[#reply + 1] = v[i] end
end
return reply
