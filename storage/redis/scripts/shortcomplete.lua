-- shortcomplete: the short way of apply.lua for calls that are nothing but runs of plain
-- completions. It reads and decides everything before its first write. If it meets anything else
-- it writes nothing and returns nil, and the client calls apply.lua.
--
-- KEYS  for each queue: meta, tasks, pending, leases, claims, lanes
-- ARGV  as for apply.lua
-- Returns  as shortinsert.lua

local call, K, A, byte, sub, text = redis.call, KEYS, ARGV, string.byte, string.sub, string.format
local t, lanes, queues, lined = call('TIME'), K[LANES], {}, {}
local total, calls, now = tonumber(A[1]), tonumber(A[3]), t[1] * 1000000 + t[2]
local mark = now
if not SHORT then return nil end
for i = 1, total do
  local at = (i - 1) * BLOCK
  local m = call('HMGET', K[at + META], 'mark', 'touched', 'completed')
  local last, touched, completed = sane(m[1] or 0), sane(m[2] or 0), sane(m[3] or 0)
  if not (last and touched and completed)
    or last > 0 and (now - last > JUMPAFTER or last - now > JUMPBACK) -- see jump.lua
    or K[at + LANES] ~= lanes then
    return nil
  end
  if mark <= last then mark = last + 1 end
  local q = {at = at, ids = {}, fences = {}, upto = {}, alarms = {}, touched = touched, completed = completed}
  queues[i], queues[A[3 + i]] = q, q
end

-- Collect the ids of each queue, and the outcomes of the calls if all completions succeed.
local fields, seqs, outcomes, a = {}, {}, {}, 4 + total
for i = 1, calls do
  local field, txs, outcome = A[a], tonumber(A[a + 4]), 'A' .. pack7(mark)
  local age = now - A[a + 2]
  if lined[field] or age > LANELIFE or age < -LANELIFE then return nil end
  lined[field], fields[i], seqs[i] = true, field, A[a + 1]
  a = a + 5
  while txs > 0 do
    local q, n, width, s = queues[A[a + 1]], tonumber(A[a + 3]), tonumber(A[a + 4]), A[a + 5]
    local ids, runs = q.ids, #q.fences + 1
    local have = #ids
    if width > 0 then
      for j = 1, n do
        local from = (j - 1) * (width + 1)
        ids[have + j] = sub(s, from + 1, from + width)
      end
    else
      for id in string.gmatch(s, '[^,]+') do ids[#ids + 1] = id end
    end
    q.fences[runs], q.upto[runs] = A[a + 2], #ids
    mark, outcome = mark + 1, outcome .. '*c'
    txs, a = txs - n, a + 6
  end
  outcomes[i] = outcome
end

-- Check that each call is a new one on a known lane.
local known, list = call('HMGET', lanes, unpack(fields)), {}
for i = 1, calls do
  local last = known[i] and sane(string.match(known[i], '^%d+'))
  if not last or tonumber(seqs[i]) <= last then return nil end
  list[2 * i - 1], list[2 * i] = fields[i], seqs[i] .. ':' .. outcomes[i]
end

-- Check that all tasks are leased under their fences, that each is completed once, and that their removal
-- is all that their ends take. Tasks outside of groups have a member of their own in leases.
for i = 1, total do
  local q, from, groups, seen = queues[i], 1, false, {}
  local ids, alarms, at = q.ids, q.alarms, q.at
  local found = call('HMGET', K[at + PENDING], unpack(ids))
  for run = 1, #q.fences do
    local fence, good, grouped = q.fences[run], {}, 0
    for j = from, q.upto[run] do
      local id, lease = ids[j], found[j]
      if seen[id] or not lease then return nil end
      seen[id] = true
      local flags = good[lease]
      if not flags then
        flags = sub(lease, 1, FENCE) == fence and byte(lease, FENCE + 1)
        if not flags or flags % GROUPED > STARTED then return nil end
        good[lease] = flags
      end
      if flags < GROUPED then alarms[#alarms + 1] = id else grouped = grouped + 1 end
    end
    if grouped > 0 then
      groups = groups or {}
      groups[fence] = (groups[fence] or 0) + grouped
    end
    from = q.upto[run] + 1
  end
  for fence, some in pairs(groups or {}) do
    local left = sane(call('HGET', K[at + CLAIMS], COUNT .. fence))
    if not left or left < some then return nil end -- it is damaged
    left = left - some
    groups[fence] = left
    if left <= 0 then alarms[#alarms + 1] = ALARM .. fence end
  end
  q.groups = groups
  if i > 1 then call('HLEN', K[at + TASKS]) end -- a key of a wrong type fails here, before any write
  if #alarms > 0 then call('ZCARD', K[at + LEASES]) end
end

local moment = text('%d', mark)
if tonumber(moment) ~= mark then return nil end -- %d cannot format it: a 32-bit Redis

-- The first write shows whether Redis permits writes; if it does not, apply.lua returns the reason. It
-- frees memory, so that a full Redis accepts it.
for i = 1, total do
  local q = queues[i]
  local at = q.at
  local done = redis.pcall('HDEL', K[at + TASKS], unpack(q.ids))
  if i == 1 and type(done) == 'table' then return nil end
  call('HDEL', K[at + PENDING], unpack(q.ids))
  for fence, left in pairs(q.groups or {}) do
    if left > 0 then call('HSET', K[at + CLAIMS], COUNT .. fence, text('%.0f', left)) else
      call('HDEL', K[at + CLAIMS], fence, COUNT .. fence)
    end
  end
  if #q.alarms > 0 then call('ZREM', K[at + LEASES], unpack(q.alarms)) end
  call('HSET', K[at + META], 'mark', moment, 'completed', text('%d', q.completed + #q.ids))
  if now - q.touched > TOUCHEVERY then call('HSET', K[at + META], 'touched', text('%d', now)) end
end
call('HSET', lanes, unpack(list))
return 'N' .. table.concat(outcomes, 'N')
