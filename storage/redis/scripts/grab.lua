-- grab: what nearly all claims come to, from one queue in which nothing but plain tasks
-- wait and are pending. It is short, for most of what a claim of a few tasks costs is what
-- its script sets up. Where it meets anything else it has written nothing and returns
-- nothing: the caller goes to claim.lua. See there and in base.lua for what all means.
--
-- KEYS  meta, tasks, pending, waiting, line, voids, leases, claims, windows, lanes
-- ARGV  1 lane field, 2 seq, 3 opened, 4 token, 5 runner, 6 most tasks - 1, 7 how many
--       start, 8 lease (µs)
-- Returns  the version of all tasks taken (7 bytes), a byte of what there is: 1 tasks that could
--       be taken, 2 cancels, 4 one length for all records; now and a semicolon; ids with commas
--       between and a semicolon; the length of each record, or of all (2 bytes), and a
--       semicolon; the records. Of many tasks the records are texts of their own, in a list
--       behind the rest.

local call, K, A, byte, char, format = redis.call, KEYS, ARGV, string.byte, string.char, string.format
local m, known, t = call('HMGET', K[1], 'mark', 'touched', 'paused', 'cancels', 'jumped'), call('HGET', K[10], A[1]), call('TIME')
local now, mark, touched = t[1] * 1000000 + t[2], (m[1] or 0) + 0, (m[2] or 0) + 0
if not known or not (mark < NEVER) or m[3] and m[3] ~= '0' or touched > 0 and now - touched >= QUEUELIFE
  or now - A[3] > LANELIFE or A[3] - now > LANELIFE
  or m[5] and m[5] ~= '0' or mark > 0 and (now - mark > JUMPAFTER or mark - now > JUMPBACK) then -- see jump.lua
  return nil
end
local last, seq = string.sub(known, 1, string.find(known, ':', 1, true) - 1), A[2]
if #last > #seq or #last == #seq and last >= seq then return nil end
-- A record for each task that waits or is pending, and no more: so no other set has any.
local at, ranked, lined, pending = format('%.0f', now), call('ZCARD', K[4]), call('LLEN', K[5]), call('HLEN', K[3])
local waiting = ranked + lined
if call('HLEN', K[2]) ~= waiting + (pending > 0 and pending - 1 or 0) or call('ZCOUNT', K[7], '-inf', at) > 0
  or call('EXISTS', K[6], K[9]) > 0 then
  return nil
end
local version, before = at, mark
if now <= mark then
  mark = mark + 1
  version = format('%.0f', mark)
else
  mark = now
end
local g = mark % 256; local r = (mark - g) / 256
local f = r % 256; r = (r - f) / 256
local e = r % 256; r = (r - e) / 256
local d = r % 256; r = (r - d) / 256
local c = r % 256; r = (r - c) / 256
local b = r % 256
local stamp = char((r - b) / 256, b, c, d, e, f, g)
local there = m[4] and tonumber(m[4]) > 0 and 2 or 0
if waiting == 0 then -- a full Redis refuses this, but not what the general script does
  local done = redis.pcall('HSET', K[10], A[1], A[2] .. ':C' .. stamp .. '00|;')
  if type(done) == 'table' then return nil end
  if before > 0 then call('HSET', K[1], 'mark', version, 'awaited', '1') end
  return stamp .. char(there) .. at .. ';;;'
end

-- First what comes before the line, by priority or because it went to the head, then the
-- line, then the rest.
local ids
if ranked == 0 then
  ids = call('LRANGE', K[5], '0', A[6])
elseif lined == 0 then
  ids = call('ZRANGE', K[4], '0', A[6])
else
  local most, high = A[6] + 1, call('ZCOUNT', K[4], '-inf', '140737488355328') -- BEHIND
  ids = high > 0 and call('ZRANGE', K[4], '0', format('%d', (high < most and high or most) - 1)) or {}
  ranked = #ids
  local some = ranked < most and call('LRANGE', K[5], '0', format('%d', most - ranked - 1)) or {}
  lined = #some
  for i = 1, lined do ids[ranked + i] = some[i] end
  if #ids < most then
    some = call('ZRANGE', K[4], format('%d', high), format('%d', high + most - #ids - 1))
    ranked = ranked + #some
    for i = 1, #some do ids[#ids + 1] = some[i] end
  end
end
local n, unpack = #ids, unpack
if n < ranked + lined then ranked, lined = ranked > 0 and n or 0, ranked == 0 and n or 0 end
local recs = call('HMGET', K[2], unpack(ids, 1, n < 500 and n or 500))
for i = 501, n, 500 do
  local last = i + 499 < n and i + 499 or n
  local more = call('HMGET', K[2], unpack(ids, i, last))
  for j = i, last do recs[j] = more[j - i + 1] end
end
local starts, grouped = tonumber(A[7]), n < 4 and 0 or 16 -- SINGLES, GROUPED
if grouped > 0 then call('HLEN', K[8]) end -- a key of a wrong type fails here, in time
local fence, leases, values, bytes, width = A[4] .. stamp, {}, {}, 0, recs[1] and #recs[1]
for i = 1, n do
  local rec = recs[i]
  local size = rec and #rec or 0
  if size ~= width then width = nil end
  if size < HEADER or size > 65535 then return nil end
  local form, flags, others = byte(rec, 1, 3)
  if others > 7 then others = others - 8 end -- HASPLACE
  if form ~= 1 or others ~= 0 and others ~= 2 then return nil end -- not to be claimed ahead, or large
  -- What takes more than its removal at its end has a flag: RECORD.
  local lease = grouped + (i <= starts and 1 or 0) -- STARTED
  if flags > 0 and (flags % 4 > 0 or flags % 32 > 15) or others == 2 then lease = lease + 8 end
  local v = values[lease]
  if grouped == 0 then
    v = fence .. char(lease, 0, i - 1) .. A[5]
  elseif not v then
    v = fence .. char(lease) .. A[5]
    values[lease] = v
  end
  leases[2 * i - 1], leases[2 * i] = ids[i], v
  bytes = bytes + size
end
if bytes - HEADER * n > MAXBYTES then return nil end
-- The first write tells whether Redis permits any. It frees memory, so that a full one
-- does not refuse it.
local done = lined > 0 and redis.pcall('LTRIM', K[5], format('%d', lined), '-1')
  or redis.pcall('ZREMRANGEBYRANK', K[4], '0', format('%d', ranked - 1))
if type(done) == 'table' and done.err then return nil end
if lined > 0 and ranked > 0 then call('ZREMRANGEBYRANK', K[4], '0', format('%d', ranked - 1)) end
if pending == 0 then -- PAD
  leases[2 * n + 1], leases[2 * n + 2] = '', '-----------------------------------------------------------------'
end
for i = 1, #leases, 1000 do
  call('HSET', K[3], unpack(leases, i, i + 999 < #leases and i + 999 or #leases))
end
local joined, till = table.concat(ids, ','), format('%.0f', now + A[8])
if grouped > 0 then
  call('ZADD', K[7], till, '!' .. fence)
  call('HSET', K[8], fence, joined, '#' .. fence, format('%d', n))
elseif n == 1 then
  call('ZADD', K[7], till, joined)
elseif n == 2 then
  call('ZADD', K[7], till, ids[1], till, ids[2])
else
  call('ZADD', K[7], till, ids[1], till, ids[2], till, ids[3])
end
if now - touched > 60000000 then
  call('HSET', K[1], 'mark', version, 'awaited', '1', 'touched', at)
else
  call('HSET', K[1], 'mark', version, 'awaited', '1')
end
call('HSET', K[10], A[1], A[2] .. ':C' .. stamp .. '0' .. n .. '|' .. joined .. ';')
local function two(size) return char((size - size % 256) / 256, size % 256) end
local lengths = width and two(width)
if not lengths then
  local list = {}
  for i = 1, n do list[i] = two(#recs[i]) end
  lengths = table.concat(list)
end
there = there + (waiting > n and 1 or 0) + (width and 4 or 0)
local head = stamp .. char(there) .. at .. ';' .. joined .. ';' .. lengths .. ';'
if n <= 32 then return head .. table.concat(recs) end
local reply = {head}
for i = 1, n, 32 do reply[#reply + 1] = table.concat(recs, '', i, i + 31 < n and i + 31 or n) end
return reply
