-- finish: what nearly all calls of completions are, of tasks of one queue on which nothing
-- hangs. It does what complete.lua does for several queues, with less to set up, and leaves
-- to apply.lua the same: then it has written nothing and returns nothing.
--
-- KEYS  meta, tasks, pending, leases, claims, lanes
-- ARGV  1 calls, then each call: lane field, seq, opened, runs, then each run: width of its ids
--       (0 where they differ) in a byte, fence, ids with commas between
-- Returns  what apply.lua does, in one text and without the time

local call, K, A, byte, char, sub, format = redis.call, KEYS, ARGV, string.byte, string.char, string.sub, string.format
local m, t = call('HMGET', K[1], 'mark', 'touched', 'completed'), call('TIME')
local now, mark, touched, completed = t[1] * 1000000 + t[2], (m[1] or 0) + 0, (m[2] or 0) + 0, (m[3] or 0) + 0
if not (mark < NEVER) then return nil end
if mark > 0 and (now - mark > JUMPAFTER or mark - now > JUMPBACK) then return nil end -- see jump.lua
mark = now > mark and now or mark + 1
local calls, a = tonumber(A[1]), 2
local fields, seqs, outcomes, ids, n, seen = {}, {}, {}, {}, 0, {}
local fences, upto, runs = {}, {}, 0
for i = 1, calls do
  local field = A[a]
  local age = now - A[a + 2]
  if seen[field] or age > LANELIFE or age < -LANELIFE then return nil end
  fields[i], seqs[i], seen[field], outcomes[i] = field, A[a + 1], true, tonumber(A[a + 3])
  for j = a + 4, a + 3 + outcomes[i] do
    local s = A[j]
    local width = byte(s, 1)
    if width > 0 then
      for at = 25, #s, width + 1 do
        n = n + 1
        ids[n] = sub(s, at, at + width - 1)
      end
    else
      for id in string.gmatch(sub(s, 25), '[^,]+') do
        n = n + 1
        ids[n] = id
      end
    end
    runs = runs + 1
    fences[runs], upto[runs] = sub(s, 2, 24), n
  end
  a = a + 4 + outcomes[i]
end
local known = call('HMGET', K[6], unpack(fields))
for i = 1, calls do
  if not known[i] or tonumber(string.match(known[i], '^%d+')) >= tonumber(seqs[i]) then return nil end
end

-- All under their fences, and nothing hanging on the tasks? Those that are of no group
-- have an alarm of their own.
local groups, alarms, from = {}, {}, 1
local leases = call('HMGET', K[3], unpack(ids, 1, n < 500 and n or 500))
for i = 501, n, 500 do
  local last = i + 499 < n and i + 499 or n
  local more = call('HMGET', K[3], unpack(ids, i, last))
  for j = i, last do leases[j] = more[j - i + 1] end
end
for run = 1, runs do
  local fence, good, grouped = fences[run], {}, 0
  for i = from, upto[run] do
    local id, lease = ids[i], leases[i]
    if seen[id] then return nil end -- completed twice
    seen[id] = true
    local flags = good[lease]
    if not flags then
      if not lease or sub(lease, 1, 23) ~= fence then return nil end -- FENCE
      flags = byte(lease, 24)
      if flags % 16 > 1 then return nil end -- GROUPED, STARTED: something hangs on it
      good[lease] = flags
    end
    if flags > 15 then grouped = grouped + 1 else alarms[#alarms + 1] = id end
  end
  if grouped > 0 then groups[fence] = (groups[fence] or 0) + grouped end
  from = upto[run] + 1
end
local kept, gone
for fence, some in pairs(groups) do
  local left = (call('HGET', K[5], '#' .. fence) or 0) - some -- COUNT
  if left > 0 then
    kept = kept or {}
    kept[#kept + 1], kept[#kept + 2] = '#' .. fence, format('%d', left)
  else
    gone = gone or {}
    gone[#gone + 1], gone[#gone + 2] = fence, '#' .. fence
    alarms[#alarms + 1] = '!' .. fence -- ALARM
  end
end
if #alarms > 0 then call('ZCARD', K[4]) end -- a key of a wrong type fails here, in time

-- The first write tells whether Redis permits any; where not, the general script says why.
-- It frees memory, so that a full Redis does not refuse it.
for i = 1, n, 500 do
  local last = i + 499 < n and i + 499 or n
  if i == 1 then
    local done = redis.pcall('HDEL', K[2], unpack(ids, 1, last))
    if type(done) == 'table' then return nil end
  else
    call('HDEL', K[2], unpack(ids, i, last))
  end
  call('HDEL', K[3], unpack(ids, i, last))
end
if gone then call('HDEL', K[5], unpack(gone)) end
if kept then call('HSET', K[5], unpack(kept)) end
for i = 1, #alarms, 500 do call('ZREM', K[4], unpack(alarms, i, i + 499 < #alarms and i + 499 or #alarms)) end
if now - touched > 60000000 then call('HSET', K[1], 'touched', format('%.0f', now)) end
call('HSET', K[1], 'mark', format('%.0f', mark + runs), 'completed', format('%d', completed + n))
for i = 1, calls do
  local g = mark % 256; local r = (mark - g) / 256
  local f = r % 256; r = (r - f) / 256
  local e = r % 256; r = (r - e) / 256
  local d = r % 256; r = (r - d) / 256
  local c = r % 256; r = (r - c) / 256
  local b = r % 256
  local v, some = 'A' .. char((r - b) / 256, b, c, d, e, f, g) .. '*c', outcomes[i]
  if some > 1 then v = v .. string.rep('*c', some - 1) end
  mark = mark + some
  call('HSET', K[6], fields[i], seqs[i] .. ':' .. v)
  outcomes[i] = 'N' .. v
end
return table.concat(outcomes)
