-- stats: reads sizes and totals of queues. It writes nothing. A key of a wrong type counts as empty, and
-- a field of meta that is no number in range as 0; each of them adds one to the damaged.
--
-- KEYS  the keys of each queue (keys.go), queue after queue
-- ARGV  1 queues
-- Returns  {now, then for each queue: the sizes of the states in their order, damaged, when the pause ends (-1 if it
--       has no end, 0 if the queue is not paused), when the tasks without a partition have rested or 0, the TOTALS in their order, the first kinds of declined
--       tasks, each with a colon, the number of its tasks and a comma, the age of the oldest waiting
--       task that was not declined (µs), how many tasks stand in the lines of partitions, and the limit of the operator, the declared one and the starts, "" if
--       there are none (limit.lua), and 1 during a wait of the clock, else 0}

local damaged

-- try returns the reply to a command, nil if its key is of a wrong type.
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
    local n = 0
    if v[i] then n = sane(v[i], FIELDS.least[FIELDS[i]]) end
    if not n then n, damaged = 0, damaged + 1 end
    m[FIELDS[i]] = n
  end
  return m
end

-- GROUPS are the places of the keys whose sizes are read, all but those of meta and lanes. The groups behind the
-- first have the keys that most queues lack: one EXISTS for a group replaces its commands.
local GROUPS = {{TASKS, LINE}, {PENDING, LEASES, CLAIMS, SIDE, IDLE, SCHEDULED, RETRY, COMPLETED, DEAD}, {}}
local TYPES, COUNTS, grouped = KEYTYPES, {hash = 'HLEN', list = 'LLEN', zset = 'ZCARD'}, {}
local STATES = SIZES -- of each state that callers know, in their order, the keys that hold its tasks
for _, group in ipairs({{META, LANES, OPENED}, GROUPS[1], GROUPS[2]}) do
  for _, at in ipairs(group) do grouped[at] = true end
end
for at = 1, BLOCK do
  if not grouped[at] then table.insert(GROUPS[3], at) end
end

-- measure returns the sizes of the keys of a queue, which follow KEYS[before], by their places. A key that
-- does not exist, or is of a wrong type, has none.
local function measure(before)
  local sizes, keys = {}, {}
  for n, group in ipairs(GROUPS) do
    for i = 1, #group do keys[i] = KEYS[before + group[i]] end
    if n == 1 or call('EXISTS', unpack(keys, 1, #group)) > 0 then
      for i = 1, #group do sizes[group[i]] = read(COUNTS[TYPES[group[i]]], keys[i]) end
    end
  end
  return sizes
end

-- joinedin returns when a waiting task joined the tail of its priority, NEVER if its record does not show it.
local function joinedin(key, id)
  return joined(try('HGET', key(TASKS), id)) or NEVER
end

-- firstin returns when the first task of the line joined it, NEVER if it finds none. It searches the first
-- MOSTVOID entries for one that is not void. Behind them it takes the void entries for a run at the head of
-- the line, as a deletion of the oldest tasks leaves it: it reads 16 entries at a time, at growing
-- distances and then by halves, for the end of that run. If the void entries are no run it may find a
-- later task.
local function firstin(key, m, length)
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
-- of its priority, NEVER if none did. Tasks that went back to the head do not count.
local function earliest(key, set)
  local at = NEVER
  for priority = MAXPRIORITY, -MAXPRIORITY, -1 do
    local from = place(priority, 0)
    local v = try('ZRANGEBYSCORE', key(set), '(' .. text(from), '(' .. text(from + SPREAD / 2), 'LIMIT', 0, 1)
    if v and v[1] then at = min(at, joinedin(key, v[1])) end
  end
  return at
end

-- eldest returns the earliest moment at which one of the tasks in the lines of the first MOSTAGED partitions of the ring
-- joined the tail of its line, of those with the priority of its first task.
local function eldest(key)
  local at, v = NEVER, try('ZRANGEBYSCORE', key(RING), '-inf', text(NEVER), 'LIMIT', 0, MOSTAGED) or {}
  local function first(from, to)
    return try('ZRANGEBYLEX', key(LINES), from, to, 'LIMIT', 0, 1)[1]
  end
  for _, line in ipairs(v) do
    local n, best, moment = #line + 2, nil, NEVER
    for class = 0, PLAIN, DOUBTFUL do
      local m = first(ring.span(line, class))
      if m and (not best or byte(m, n) % DOUBTFUL < best) then best = byte(m, n) % DOUBTFUL end
    end
    local before
    for class = 0, best and PLAIN or -1, DOUBTFUL do
      local lead = ring.lead(line, MAXPRIORITY - best, class)
      local m = first('[' .. lead .. pack7(SPREAD / 2), '(' .. lead .. '\33')
      local place = m and sub(m, n + 1, n + PLACE)
      if m and (not before or ring.before(place, before)) then before, moment = place, number(m, n + PLACE + 1, PLACE) end
    end
    at = min(at, moment)
  end
  return at
end

local t = call('TIME')
now = t[1] * 1000000 + t[2]
local reply, last = {text(now)}, 1
for n = 0, ARGV[1] - 1 do
  damaged = 0
  local function key(i) return KEYS[n * BLOCK + i] end
  local m, sizes = numbers(key(META)), measure(n * BLOCK)
  local function size(at)
    local n = sizes[at] or 0
    if at == PENDING then n = n - 1 elseif at == LINE then n = n - m.void end -- PAD, and void entries
    return max(n, 0)
  end
  local v, records = {}, 0
  for i, keys in ipairs(STATES) do
    v[i] = 0
    for _, at in ipairs(keys) do v[i] = v[i] + size(at) end
    records = records + v[i]
  end
  -- Records beyond these are unindexed: see reindex.lua.
  local unindexed = damaged == 0 and max(size(TASKS) - records, 0) or 0
  v[#v + 1] = size(DAMAGED) + damaged + unindexed
  v[#v + 1] = paused(m, now) and m.paused or 0
  v[#v + 1] = m.rest > now and m.rest or 0
  for _, total in ipairs(TOTALS) do v[#v + 1] = m[total] end
  local kinds = {}
  if size(LINES) > 0 then
    for _, line in ipairs(byname.lines(key(LINES), nil, STATSKINDS)) do
      local n, suspects = byname.tally(read('HGET', key(SIDE), 'l:' .. line))
      if byname.valid(line) then kinds[#kinds + 1] = sub(line, 2) .. ':' .. (n or 0) + suspects .. ',' end
    end
  end
  v[#v + 1] = table.concat(kinds)
  local oldest = now
  if size(LINE) > 0 and try('ZCARD', key(VOIDS)) then oldest = min(oldest, firstin(key, m, sizes[LINE])) end
  if size(WAITING) > 0 then oldest = min(oldest, earliest(key, WAITING)) end
  if size(SUSPECTS) > 0 then oldest = min(oldest, earliest(key, SUSPECTS)) end
  local keyed = size(LINES) > 0 and size(RING) > 0
  if keyed then oldest = min(oldest, eldest(key)) end
  v[#v + 1] = now - oldest
  v[#v + 1] = size(LINES) > 0 and ring.count(key(LINES)) or 0
  local limit = m.lines < 0 and try('HMGET', key(SIDE), 'q:operator', 'q:declared', 'q:starts') or {}
  for i = 1, 3 do v[#v + 1] = limit[i] or '' end
  v[#v + 1] = m.jumped > 0 and now >= m.jumped and now - m.jumped < JUMPWAIT and 1 or 0
  for i = 1, #v do reply[last + i] = v[i] end
  last = last + #v
end
return reply
