-- insert: inserts on which nothing hangs, as most are: due now, of new ids, without a unique
-- key or a large payload, by calls on lanes that are known. What several calls bring is
-- read and written together, for each command costs more than a task.
--
-- KEYS  for each queue: meta, tasks, waiting, line, lanes
-- ARGV, Returns  see short.lua

local META, TASKS, WAITING, LINE, LANES, BLOCK = 1, 2, 3, 4, 5, 5

local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local mark, born = now, pack7(now)
local queues, total, lanes = {}, tonumber(ARGV[1]), {}
for i = 1, total do
  local at = (i - 1) * BLOCK
  local m = call('HMGET', KEYS[at + META], 'mark', 'touched', 'enqueued', 'tail', 'awaited', 'turn')
  call('ZCARD', KEYS[at + WAITING]) -- a key of a wrong type fails here, in time
  call('LLEN', KEYS[at + LINE])
  local last = count(m[1])
  if last > 0 and (now - last > JUMPAFTER or last - now > JUMPBACK) then return nil end -- see jump.lua
  if mark <= last then mark = last + 1 end
  local q = {at = at, ids = {}, ranked = 0, enqueued = count(m[3]), tail = count(m[4]), turn = count(m[6]), touched = count(m[2]),
    wakes = not m[1] or m[5] == '1'}
  queues[i], queues[ARGV[2 + i]] = q, q
end

local calls, runs, seen, a = tonumber(ARGV[2]), {}, {}, 3 + total
local last = {} -- of each call, its last run
for i = 1, calls do
  note(lanes, KEYS[queues[ARGV[a + 3]].at + LANES], a, i)
  local txs = tonumber(ARGV[a + 5])
  a = a + 6
  while txs > 0 do
    local q, n = queues[ARGV[a + 1]], tonumber(ARGV[a + 3])
    local ids, have = q.ids, #q.ids
    for j = 1, n do
      local id = ARGV[a + 2 + 2 * j]
      if seen[id] then return nil end -- or in another queue: it is rare
      ids[have + j], seen[id] = id, true
      if byte(ARGV[a + 3 + 2 * j], 1) ~= 9 then q.ranked = q.ranked + 1 end -- priority 0 is in the line
    end
    runs[#runs + 1] = {q = q, lead = ARGV[a + 2], at = a + 3, n = n, have = have}
    txs, a = txs - n, a + 4 + 2 * n
  end
  last[i] = #runs
end
if not follow(lanes, now) then return nil end
for i = 1, total do
  local q = queues[i]
  for j = 1, #q.ids, 500 do
    local found = call('HMGET', KEYS[q.at + TASKS], unpack(q.ids, j, min(j + 499, #q.ids)))
    for k = 1, #found do
      if found[k] then return nil end
    end
  end
end

-- The first write tells whether Redis permits any, which a full one does not; then the
-- general script says why.
for i = 1, total do
  local q = queues[i]
  local at = text(mark + #runs)
  local done = redis.pcall('HSET', KEYS[q.at + META], 'mark', at, 'enqueued', text(q.enqueued + #q.ids),
    'tail', text(q.tail + #q.ids - q.ranked), 'turn', text(q.turn + q.ranked),
    'touched', text(now - q.touched > 60000000 and now or q.touched), 'awaited', '0')
  if i == 1 and type(done) == 'table' and done.err then return nil end
  q.records, q.places, q.line = {}, {}, q.ranked == 0 and q.ids or {}
end
local reply, run = {0}, 1
for i = 1, calls do
  local outcome = 'A' .. pack7(mark)
  while run <= last[i] do
    mark = mark + 1
    local r = runs[run]
    local q, have = r.q, r.have
    local ids, records, places, line, ranked = q.ids, q.records, q.places, q.line, q.ranked > 0
    local lead = r.lead .. pack7(mark) .. born
    for j = 1, r.n do
      local rest, k = ARGV[r.at + 2 * j], have + j
      records[2 * k - 1], records[2 * k] = ids[k], lead .. rest
      if ranked then
        local priority = byte(rest, 1) - 9
        if priority == 0 then line[#line + 1] = ids[k] else
          q.turn = q.turn + 1
          places[#places + 1], places[#places + 2] = q.turn - priority * 281474976710656, ids[k] -- place in lib.lua
        end
      end
    end
    outcome = outcome .. '*w'
    run = run + 1
  end
  reply[i + 1] = outcome
end
for i = 1, total do
  local q = queues[i]
  ask('HSET', KEYS[q.at + TASKS], q.records)
  ask('RPUSH', KEYS[q.at + LINE], q.line)
  ask('ZADD', KEYS[q.at + WAITING], q.places)
  -- A user of Redis may have no channels: a hint must not tear the step.
  if q.wakes then redis.pcall('PUBLISH', sub(KEYS[q.at + META], 1, -5) .. 'wake', 'w') end
end
return recall(lanes, reply, now)
