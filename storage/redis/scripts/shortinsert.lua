-- shortinsert: the short way of apply.lua for calls that are nothing but runs of plain inserts into
-- one queue. It reads and decides everything before its first write. If it meets anything else it
-- writes nothing and returns nil, and the client calls apply.lua.
--
-- It makes few tables and functions, and takes few keys, because the setup of apply.lua costs as much
-- as forty commands.
--
-- KEYS  meta, tasks, waiting, line, lanes, idle
-- ARGV  1 calls, 2 runs of all calls, 3 and 4 when the first and the last of the lanes were opened,
--       5 number of leads, 6 number of parts before; then the leads, the first 3 bytes of records; of each
--       part before, which must have happened, lane field and seq; and each call: lane field, seq and
--       runs; each run: a number, and of each insert the id and the record behind its 17th byte. The
--       number is 256 times the number of inserts, plus the place of the lead, and negative if
--       another run of the call follows
-- Returns  the outcomes of the calls as apply.lua, each behind its verdict, joined to one text and
--       without the time

local call, K, A, byte, text, char = redis.call, KEYS, ARGV, string.byte, string.format, string.char
local m, t = call('HMGET', K[META], 'mark', 'touched', 'enqueued', 'tail'), call('TIME')
local now, last, touched = t[1] * 1000000 + t[2], sane(m[1]), sane(m[2] or 0)
local enqueued, tail, turn = sane(m[3] or 0), sane(m[4] or 0), nil
-- If the queue is new, or was removed, apply.lua answers that it has to be on the list of queues.
if not SHORT or not (last and touched and enqueued and tail)
  or now - last > JUMPAFTER or last - now > JUMPBACK -- see jump.lua
  or now - A[3] > LANELIFE or A[4] - now > LANELIFE then
  return nil
end
local mark = now > last and now or last + 1
-- Each call and each run has a mark of its own. All of them have the same first six bytes.
local g, marks = mark % 256, A[2] + 0
if marks > 254 then return nil end
if g + marks > 255 then mark, g = mark + 256 - g, 0 end
local calls, leads, befores, born, high = A[1] + 0, 6, A[6] + 0, pack7(now), string.sub(pack7(mark), 1, 6)
local a, ids, k = leads + A[5] + 2 * befores + 1, {}, 0
local fields, seqs, outcomes, records, line, places, seen = {}, {}, {}, {}, {}, false, {}
for i = 1, calls do
  local field, seq, outcome = A[a], A[a + 1], 'A' .. high .. char(g)
  if seen[field] then return nil end
  seen[field], fields[i], seqs[i] = true, field, seq
  a = a + 2
  local more
  repeat
    local v = A[a] + 0
    more, v = v < 0, v < 0 and -v or v
    g = g + 1
    local at, lead = v % 256, nil
    local n = (v - at) / 256
    lead = A[leads + at] .. high .. char(g) .. born
    for j = a + 1, a + 2 * n, 2 do
      local id, rest = A[j], A[j + 1]
      if seen[id] then return nil end
      k = k + 1
      seen[id], ids[k], records[2 * k - 1], records[2 * k] = true, id, id, lead .. rest
      local priority = byte(rest, 1) - MAXPRIORITY
      if priority == 0 then line[#line + 1] = id else
        turn = (turn or sane(call('HGET', K[META], 'turn') or 0) or NEVER) + 1
        if turn > NEVER then return nil end
        places = places or {}
        -- As place in lib.lua.
        places[#places + 1], places[#places + 2] = text('%.0f', turn - priority * SPREAD), id
      end
    end
    outcome, a = outcome .. '*w', a + 1 + 2 * n
  until not more
  outcomes[i] = outcome
end
mark = mark - mark % 256 + g

-- Check that each call is a new one on a known lane, that the parts before have happened, and that the ids
-- are free.
local known, list = call('HMGET', K[LANES], unpack(fields)), {}
for i = 1, calls do
  local past, seq = known[i] and string.match(known[i], '^%d+'), seqs[i]
  if not past or tonumber(past) >= tonumber(seq) then return nil end
  list[2 * i - 1], list[2 * i] = fields[i], seq .. ':' .. outcomes[i]
end
for i = leads + A[5] + 1, leads + A[5] + 2 * befores, 2 do
  local v = not seen[A[i]] and call('HGET', K[LANES], A[i])
  if v == false and not seen[A[i]] or v and string.match(v, '^%d+') ~= A[i + 1] then return nil end
end
local found = call('HMGET', K[TASKS], unpack(ids))
for i = 1, k do
  if found[i] then return nil end
end
if places then call('ZCARD', K[WAITING]) end -- a key of a wrong type fails here, before any write
if #line > 0 then call('LLEN', K[LINE]) end
local at = text('%d', mark)
if tonumber(at) ~= mark then return nil end -- %d cannot format it: a 32-bit Redis

-- The first write shows whether Redis permits writes, which a full Redis does not; then apply.lua
-- returns the reason. The line comes last: see commit in commit.lua.
local done = redis.pcall('HSET', K[TASKS], unpack(records))
if type(done) == 'table' then return nil end
if places then call('ZADD', K[WAITING], unpack(places)) end
call('HSET', K[LANES], unpack(list))
local numbers = {'mark', at, 'enqueued', text('%d', enqueued + k), 'tail', text('%d', tail + #line)}
if turn then numbers[7], numbers[8] = 'turn', text('%d', turn) end
if now - touched > TOUCHEVERY then numbers[#numbers + 1], numbers[#numbers + 2] = 'touched', text('%d', now) end
call('HSET', K[META], unpack(numbers))
rouse(K[IDLE], K[META], 1, now)
if #line > 0 then call('RPUSH', K[LINE], unpack(line)) end
return 'N' .. table.concat(outcomes, 'N')
