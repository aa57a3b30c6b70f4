-- shortinsert: the short way of apply.lua for calls that are nothing but runs of plain inserts into
-- one queue. It reads and decides everything before its first write. Where it meets anything else it
-- writes nothing and returns nil, and the client calls apply.lua.
--
-- It makes few tables and functions, and takes few keys, because the setup of apply.lua costs as much
-- as forty commands.
--
-- KEYS  meta, tasks, waiting, line, lanes
-- ARGV  1 calls, then each call: lane field, seq, opened, the lane field of the part before it in the
--       same call of the client, which must have happened ("" for none), runs; each run: first 3 bytes
--       of each record, number of inserts, and of each insert the id and the record behind its 17th byte
-- Returns  the outcomes of the calls as apply.lua, each behind its verdict, joined to one text and
--       without the time

local call, K, A, byte, text = redis.call, KEYS, ARGV, string.byte, string.format
local m, t = call('HMGET', K[META], 'mark', 'touched', 'enqueued', 'tail', 'awaited'), call('TIME')
local now, last, touched = t[1] * 1000000 + t[2], tonumber(m[1]), tonumber(m[2] or 0)
local enqueued, tail, turn = tonumber(m[3] or 0), tonumber(m[4] or 0), nil
-- Where the queue is new, or was removed, apply.lua answers that it has to be on the list of queues.
if not SHORT or not (last and last < NEVER and touched and enqueued and tail)
  or now - last > JUMPAFTER or last - now > JUMPBACK then -- see jump.lua
  return nil
end
local mark = now > last and now or last + 1
local calls, a, born, ids, k = tonumber(A[1]), 2, pack7(now), {}, 0
local stamp = mark == now and born or pack7(mark)
local fields, seqs, befores, outcomes, records, line, places, seen = {}, {}, false, {}, {}, {}, false, {}
for i = 1, calls do
  local field, age, runs, outcome = A[a], now - A[a + 2], tonumber(A[a + 4]), 'A' .. stamp
  if seen[field] or age > LANELIFE or age < -LANELIFE then return nil end
  seen[field], fields[i], seqs[i] = true, field, A[a + 1]
  if A[a + 3] ~= '' then
    befores = befores or {}
    befores[#befores + 1], befores[#befores + 2] = A[a + 3], A[a + 1]
  end
  a = a + 5
  for _ = 1, runs do
    mark = mark + 1
    stamp = pack7(mark)
    local lead, n = A[a] .. stamp .. born, tonumber(A[a + 1])
    for j = a + 2, a + 2 * n, 2 do
      local id, rest = A[j], A[j + 1]
      if seen[id] then return nil end
      k = k + 1
      seen[id], ids[k], records[2 * k - 1], records[2 * k] = true, id, id, lead .. rest
      local priority = byte(rest, 1) - MAXPRIORITY
      if priority == 0 then line[#line + 1] = id else
        turn = (turn or tonumber(call('HGET', K[META], 'turn') or 0) or NEVER) + 1
        if turn > NEVER then return nil end
        places = places or {}
        -- As place in lib.lua.
        places[#places + 1], places[#places + 2] = text('%.0f', turn - priority * SPREAD), id
      end
    end
    outcome, a = outcome .. '*w', a + 2 + 2 * n
  end
  outcomes[i] = outcome
end

-- Check that each call is a new one on a known lane, that the parts before it have happened, and that
-- the ids are free.
local known, list = call('HMGET', K[LANES], unpack(fields)), {}
for i = 1, calls do
  local past = known[i] and tonumber(string.match(known[i], '^%d+'))
  if not past or tonumber(seqs[i]) <= past then return nil end
  list[2 * i - 1], list[2 * i] = fields[i], seqs[i] .. ':' .. outcomes[i]
end
for i = 1, befores and #befores or 0, 2 do
  local v = not seen[befores[i]] and call('HGET', K[LANES], befores[i])
  if v == false and not seen[befores[i]] or v and string.match(v, '^%d+') ~= befores[i + 1] then return nil end
end
local found = call('HMGET', K[TASKS], unpack(ids))
for i = 1, k do
  if found[i] then return nil end
end
if places then call('ZCARD', K[WAITING]) end -- a key of a wrong type fails here, before any write
local at = text('%d', mark)
if tonumber(at) ~= mark then return nil end -- %d cannot format it: a 32-bit Redis

-- The first write tells whether Redis permits writes, which a full Redis does not; then apply.lua
-- returns the reason.
local done = #line > 0 and redis.pcall('RPUSH', K[LINE], unpack(line)) or #line == 0 and redis.pcall('ZADD', K[WAITING], unpack(places))
if type(done) == 'table' then return nil end
if places and #line > 0 then call('ZADD', K[WAITING], unpack(places)) end
call('HSET', K[TASKS], unpack(records))
call('HSET', K[LANES], unpack(list))
local numbers = {'mark', at, 'enqueued', text('%d', enqueued + k), 'tail', text('%d', tail + #line)}
if turn then numbers[7], numbers[8] = 'turn', text('%d', turn) end
if m[5] ~= '0' then numbers[#numbers + 1], numbers[#numbers + 2] = 'awaited', '0' end
if now - touched > TOUCHEVERY then numbers[#numbers + 1], numbers[#numbers + 2] = 'touched', text('%d', now) end
call('HSET', K[META], unpack(numbers))
-- The user may have no permission for channels: a failed wake-up must not abort the step.
if m[5] == '1' then redis.pcall('PUBLISH', string.sub(K[META], 1, -5) .. 'wake', 'w') end
return 'N' .. table.concat(outcomes, 'N')
