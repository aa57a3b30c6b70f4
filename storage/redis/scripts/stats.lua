-- stats: reads sizes and totals of queues. It writes nothing. A key of a wrong type counts as empty, and
-- a field of meta that is no number as 0; each of them adds one to the damaged.
--
-- KEYS  the keys of each queue (keys.go), queue after queue
-- ARGV  1 queues
-- Returns  {now, then for each queue: waiting, pending, scheduled, retry, completed,
--       cancelled, dead, cursors, damaged, paused, the TOTALS in their order, the first kinds of
--       declined tasks, each with a colon, the number of its tasks and a comma, and the age of the
--       oldest waiting task that was not declined (µs)}

local damaged

-- try returns the reply to a command, nil where its key is of a wrong type.
local function try(command, ...)
  local v = redis.pcall(command, ...)
  if type(v) ~= 'table' or not v.err then return v end
end

local function read(command, ...)
  local v = try(command, ...)
  if v == nil then damaged = damaged + 1 end
  return v
end

local function numbers(key)
  local v, m = read('HMGET', key, unpack(FIELDS)) or {}, {}
  for i = 1, #FIELDS do
    m[FIELDS[i]] = v[i] and sane(v[i]) or 0
    if v[i] and not sane(v[i]) then damaged = damaged + 1 end
  end
  return m
end

-- joinedin returns when a waiting task joined the tail of its priority, NEVER where its record does not tell.
local function joinedin(key, id)
  return joined(try('HGET', key(TASKS), id)) or NEVER
end

-- firstin returns when the first task of the line joined it, NEVER where it finds none. It looks at the
-- first MOSTVOID entries for one that is not void. Behind them it takes the void entries for a run at the
-- head of the line, as a deletion of the oldest tasks leaves it: it looks at 16 entries at a time, at
-- growing distances and then by halves, for the end of that run. Where the void entries are no run it may
-- find a later task.
local function firstin(key, m)
  local length = try('LLEN', key(LINE)) or 0
  if length <= m.void or not try('ZCARD', key(VOIDS)) then return NEVER end
  local line = {m = m, [LINE] = key(LINE), [VOIDS] = key(VOIDS)}
  local function live(from, n)
    for _, id in ipairs(entries(line, m.tail - length + 1, from, n)) do
      if id then return id end
    end
  end
  local id, low, high = live(0, m.void > 0 and MOSTVOID or 1), MOSTVOID, MOSTVOID -- the entries before low are void
  while not id and low < length do
    high = min(2 * low, max(length - 16, low))
    id = live(high, 16)
    if not id then low = high + 16 end
  end
  while id and low < high do
    local middle = floor((low + high) / 2)
    local other = live(middle, 16)
    if other then id, high = other, middle else low = middle + 16 end
  end
  return id and joinedin(key, id) or NEVER
end

-- earliest returns the earliest moment at which one of the tasks in a set of waiting tasks joined the tail
-- of its priority, NEVER where none did. Tasks that went back to the head do not count.
local function earliest(key, set)
  if (try('ZCARD', key(set)) or 0) == 0 then return NEVER end
  local at = NEVER
  for priority = MAXPRIORITY, -MAXPRIORITY, -1 do
    local from = -priority * SPREAD
    local v = try('ZRANGEBYSCORE', key(set), '(' .. text(from), '(' .. text(from + SPREAD / 2), 'LIMIT', 0, 1)
    if v and v[1] then at = min(at, joinedin(key, v[1])) end
  end
  return at
end

local t = call('TIME')
now = t[1] * 1000000 + t[2]
local reply = {text(now)}
for n = 0, ARGV[1] - 1 do
  damaged = 0
  local function key(i) return KEYS[n * BLOCK + i] end
  local function size(st) return read('ZCARD', key(SETS[st])) or 0 end
  local m = numbers(key(META))
  local waiting = size('w') + size('z') + size('k') + max((read('LLEN', key(LINE)) or 0) - m.void, 0)
  local v = {waiting, max((read('HLEN', key(PENDING)) or 0) - 1, 0), size('s'), size('r'), size('c'), size('x'),
    size('d'), size('u')}
  for _, i in ipairs({TASKS, SIDE, UNIQUE, CLAIMS}) do read('HLEN', key(i)) end
  for _, i in ipairs({LEASES, WINDOWS, VOIDS, IDLE}) do read('ZCARD', key(i)) end
  local records = 0
  for i = 1, 8 do records = records + v[i] end
  -- Records beyond these are unindexed: see reindex.lua.
  local unindexed = damaged == 0 and max((try('HLEN', key(TASKS)) or 0) - records, 0) or 0
  v[9] = (read('HLEN', key(DAMAGED)) or 0) + damaged + unindexed
  v[10] = text(m.paused)
  for i = 1, #TOTALS do v[10 + i] = text(m[TOTALS[i]]) end
  local kinds = {}
  if size('k') > 0 then
    for _, kind in ipairs(kindsof(key(DECLINED), nil, STATSKINDS)) do
      local n, suspects = tally(read('HGET', key(SIDE), 'k:' .. kind))
      if valid(kind) then kinds[#kinds + 1] = kind .. ':' .. (n or 0) + suspects .. ',' end
    end
  end
  v[#v + 1] = table.concat(kinds)
  v[#v + 1] = text(max(now - min(firstin(key, m), earliest(key, WAITING), earliest(key, SUSPECTS)), 0))
  for i = 1, #v do reply[#reply + 1] = v[i] end
end
return reply
