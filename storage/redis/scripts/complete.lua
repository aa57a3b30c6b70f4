-- complete: completions on which nothing hangs, as most are: under a fence that holds, of
-- tasks that are not kept, by calls on lanes that are known. What several calls bring is
-- read and written together, for each command costs more than a task.
--
-- KEYS  for each queue: meta, tasks, pending, leases, claims, lanes
-- ARGV, Returns  see short.lua

local META, TASKS, PENDING, LEASES, CLAIMS, LANES, BLOCK = 1, 2, 3, 4, 5, 6, 6
local GROUPED, ALARM, COUNT = 16, '!', '#' -- see base.lua

local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local mark = now
local queues, total, lanes = {}, tonumber(ARGV[1]), {}
for i = 1, total do
  local at = (i - 1) * BLOCK
  local m = call('HMGET', KEYS[at + META], 'mark', 'touched', 'completed')
  call('ZCARD', KEYS[at + LEASES]) -- keys of a wrong type fail here, in time
  call('HLEN', KEYS[at + TASKS])
  local last = count(m[1])
  if last > 0 and (now - last > JUMPAFTER or last - now > JUMPBACK) then return nil end -- see jump.lua
  if mark <= last then mark = last + 1 end
  local q = {at = at, ids = {}, alarms = {}, groups = {}, seen = {}, completed = count(m[3]),
    touched = count(m[2])}
  queues[i], queues[ARGV[2 + i]] = q, q
end

-- spread puts n ids, apart and of one width or, if that is 0, not, behind others.
local function spread(s, n, width, list, seen)
  local have = #list
  if width > 0 then
    for i = 1, n do
      local at = (i - 1) * (width + 1)
      list[have + i] = sub(s, at + 1, at + width)
    end
  else
    for id in string.gmatch(s, '[^,]+') do list[#list + 1] = id end
  end
  for i = have + 1, have + n do
    if seen[list[i]] then return false end -- completed twice
    seen[list[i]] = true
  end
  return true
end

local calls, runs, last, a = tonumber(ARGV[2]), {}, {}, 3 + total
for i = 1, calls do
  note(lanes, KEYS[queues[ARGV[a + 3]].at + LANES], a, i)
  local txs = tonumber(ARGV[a + 5])
  a = a + 6
  while txs > 0 do
    local q, n = queues[ARGV[a + 1]], tonumber(ARGV[a + 3])
    runs[#runs + 1] = {q = q, fence = ARGV[a + 2], have = #q.ids, n = n}
    if not spread(ARGV[a + 5], n, tonumber(ARGV[a + 4]), q.ids, q.seen) then return nil end
    txs, a = txs - n, a + 6
  end
  last[i] = #runs
end
if not follow(lanes, now) then return nil end
for i = 1, total do
  local q, leases = queues[i], {}
  for j = 1, #q.ids, 500 do
    local found = call('HMGET', KEYS[q.at + PENDING], unpack(q.ids, j, min(j + 499, #q.ids)))
    for k = 1, #found do leases[j + k - 1] = found[k] end
  end
  q.leases = leases
end

-- All under their fences, and nothing hanging on the tasks? Those that are of no group
-- have an alarm of their own.
for i = 1, #runs do
  local r = runs[i]
  local q, good, grouped = r.q, {}, 0
  for j = r.have + 1, r.have + r.n do
    local l = q.leases[j]
    local flags = good[l]
    if not flags then
      if not l or sub(l, 1, FENCE) ~= r.fence then return nil end
      flags = byte(l, FENCE + 1)
      if flags % GROUPED > STARTED then return nil end -- something hangs on it
      good[l] = flags
    end
    if flags < GROUPED then q.alarms[#q.alarms + 1] = q.ids[j] else grouped = grouped + 1 end
  end
  if grouped > 0 then q.groups[r.fence] = (q.groups[r.fence] or 0) + grouped end
end
for i = 1, total do
  local q, fields, list = queues[i], {}, {}
  for fence in pairs(q.groups) do
    list[#list + 1], fields[#fields + 1] = fence, COUNT .. fence
  end
  if #list > 0 then
    local left = call('HMGET', KEYS[q.at + CLAIMS], unpack(fields))
    for j = 1, #list do q.groups[list[j]] = (left[j] or 0) - q.groups[list[j]] end
  end
end

-- The first write tells whether Redis permits any; where not, the general script says
-- why. It frees memory, so that a full Redis does not refuse it.
for i = 1, total do
  local q = queues[i]
  for j = 1, #q.ids, 500 do
    local done = redis.pcall('HDEL', KEYS[q.at + PENDING], unpack(q.ids, j, min(j + 499, #q.ids)))
    if i == 1 and j == 1 and type(done) == 'table' and done.err then return nil end
  end
  ask('HDEL', KEYS[q.at + TASKS], q.ids)
  local kept, gone = {}, {}
  for fence, left in pairs(q.groups) do
    if left > 0 then
      kept[#kept + 1], kept[#kept + 2] = COUNT .. fence, left
    else
      gone[#gone + 1], gone[#gone + 2] = fence, COUNT .. fence
      q.alarms[#q.alarms + 1] = ALARM .. fence
    end
  end
  ask('HDEL', KEYS[q.at + CLAIMS], gone)
  ask('HSET', KEYS[q.at + CLAIMS], kept)
  ask('ZREM', KEYS[q.at + LEASES], q.alarms)
  call('HSET', KEYS[q.at + META], 'mark', text(mark + #runs), 'completed', text(q.completed + #q.ids),
    'touched', text(now - q.touched > 60000000 and now or q.touched))
end
local reply, run = {0}, 0
for i = 1, calls do
  reply[i + 1] = 'A' .. pack7(mark + run) .. string.rep('*c', last[i] - run)
  run = last[i]
end
return recall(lanes, reply, now)
