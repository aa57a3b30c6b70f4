-- glean: what grab.lua is for one queue, for several: claims where nothing but plain tasks
-- wait and are pending. Where it meets anything else it has written nothing and returns
-- nothing: the caller goes to claim.lua. See there and in base.lua for what all means. Most of
-- this stands in grab.lua too: with its loops a claim of one task costs a seventh more.
--
-- KEYS  for each queue: meta, tasks, pending, waiting, line, voids, leases, claims, windows;
--       last the lanes of the first
-- ARGV  1-8 those of grab.lua, 9... for each queue the most tasks of it
-- Returns  what grab.lua does, with ids and a semicolon for each queue

local call, K, A, byte, char, format, concat = redis.call, KEYS, ARGV, string.byte, string.char, string.format, table.concat
local lanes, metas = K[#K], {}
local known, t = call('HGET', lanes, A[1]), call('TIME')
local now, there = t[1] * 1000000 + t[2], 0
local most = now
for i = 1, (#K - 1) / 9 do
  local m = call('HMGET', K[9 * i - 8], 'mark', 'touched', 'paused', 'cancels', 'awaited', 'jumped')
  local mark = (m[1] or 0) + 0
  if not (mark < NEVER) then return nil end
  if most <= mark then most = mark + 1 end
  if m[3] and m[3] ~= '0' or m[6] and m[6] ~= '0' then return nil end
  if mark > 0 and (now - mark > JUMPAFTER or mark - now > JUMPBACK) then return nil end -- see jump.lua
  if m[4] and tonumber(m[4]) > 0 then there = 2 end
  metas[i] = m
end
if not known or now - A[3] > LANELIFE or A[3] - now > LANELIFE then return nil end
local last, seq = string.sub(known, 1, string.find(known, ':', 1, true) - 1), A[2]
if #last > #seq or #last == #seq and last >= seq then return nil end
local g = most % 256; local r = (most - g) / 256
local f = r % 256; r = (r - f) / 256
local e = r % 256; r = (r - e) / 256
local d = r % 256; r = (r - d) / 256
local c = r % 256; r = (r - c) / 256
local b = r % 256
local stamp, at, version = char((r - b) / 256, b, c, d, e, f, g), format('%.0f', now), format('%.0f', most)
local unpack = unpack

-- What is there, and what is to be taken of it?
local fence, values, starts = A[4] .. stamp, {}, tonumber(A[7])
local hauls, joined, left, rest, taken, bytes, width = {}, {}, A[6] + 1, 0, 0, 0
for i = 1, #metas do
  local k, m, n = 9 * i - 9, metas[i], tonumber(A[8 + i])
  local ranked, lined, pending = call('ZCARD', K[k + 4]), call('LLEN', K[k + 5]), call('HLEN', K[k + 3])
  local waiting, touched = ranked + lined, (m[2] or 0) + 0
  -- A record for each task that waits or is pending, and no more: so no other set has any.
  if call('HLEN', K[k + 2]) ~= waiting + (pending > 0 and pending - 1 or 0)
    or touched > 0 and now - touched >= QUEUELIFE
    or call('ZCOUNT', K[k + 7], '-inf', at) > 0 or call('EXISTS', K[k + 6], K[k + 9]) > 0 then
    return nil
  end
  if n > left then n = left end
  if n > waiting then n = waiting end
  rest, joined[i] = rest + waiting - n, ''
  if n > 0 then
    local ids
    if ranked == 0 then
      ids, lined = call('LRANGE', K[k + 5], '0', format('%d', n - 1)), n
    elseif lined == 0 then
      ids, ranked = call('ZRANGE', K[k + 4], '0', format('%d', n - 1)), n
    else -- as in grab.lua
      local high = call('ZCOUNT', K[k + 4], '-inf', '140737488355328') -- BEHIND
      ranked = high < n and high or n
      ids = ranked > 0 and call('ZRANGE', K[k + 4], '0', format('%d', ranked - 1)) or {}
      lined = lined < n - ranked and lined or n - ranked
      local some = lined > 0 and call('LRANGE', K[k + 5], '0', format('%d', lined - 1)) or {}
      for j = 1, lined do ids[ranked + j] = some[j] end
      local low = n - #ids
      some = low > 0 and call('ZRANGE', K[k + 4], format('%d', high), format('%d', high + low - 1)) or {}
      for j = 1, low do ids[n - low + j] = some[j] end
      ranked = ranked + low
    end
    local recs = call('HMGET', K[k + 2], unpack(ids, 1, n < 500 and n or 500))
    for j = 501, n, 500 do
      local to = j + 499 < n and j + 499 or n
      local more = call('HMGET', K[k + 2], unpack(ids, j, to))
      for l = j, to do recs[l] = more[l - j + 1] end
    end
    local grouped, leases, starting = n < 4 and 0 or 16, {}, starts - taken -- SINGLES, GROUPED
    if grouped > 0 then call('HLEN', K[k + 8]) end -- a key of a wrong type fails here, in time
    if taken == 0 then width = recs[1] and #recs[1] end
    for j = 1, n do
      local rec = recs[j]
      local size = rec and #rec or 0
      if size ~= width then width = nil end
      if size < HEADER or size > 65535 then return nil end
      local form, flags, others = byte(rec, 1, 3)
      if others > 7 then others = others - 8 end -- HASPLACE
      if form ~= 1 or others ~= 0 and others ~= 2 then return nil end -- not to be claimed ahead, or large
      -- What takes more than its removal at its end has a flag: RECORD.
      local lease = grouped + (j <= starting and 1 or 0) -- STARTED
      if flags > 0 and (flags % 4 > 0 or flags % 32 > 15) or others == 2 then lease = lease + 8 end
      local v = values[lease]
      if grouped == 0 then
        v = fence .. char(lease, 0, j - 1) .. A[5]
      elseif not v then
        v = fence .. char(lease) .. A[5]
        values[lease] = v
      end
      leases[2 * j - 1], leases[2 * j] = ids[j], v
      bytes = bytes + size
    end
    if pending == 0 then -- PAD
      leases[2 * n + 1], leases[2 * n + 2] = '', '-----------------------------------------------------------------'
    end
    left, taken, joined[i] = left - n, taken + n, concat(ids, ',')
    hauls[#hauls + 1] = {k, n, ids, recs, leases, now - touched > 60000000 and at, i, ranked, lined}
    m[1] = nil
  end
end
if bytes - HEADER * taken > MAXBYTES then return nil end

-- The first write tells whether Redis permits any. It frees memory, so that a full one
-- does not refuse it; where nothing is taken none can, and the general script sees to that.
local ids, done = concat(joined, ';') .. ';'
local outcome = A[2] .. ':C' .. stamp .. '0' .. taken .. '|' .. ids
if taken == 0 then
  done = redis.pcall('HSET', lanes, A[1], outcome)
else
  done = redis.pcall('HDEL', K[hauls[1][1] + 1], '')
end
if type(done) == 'table' then return nil end
for i = 1, #hauls do
  local h = hauls[i]
  local k, n, ids, leases, ranked, lined = h[1], h[2], h[3], h[5], h[8], h[9]
  if lined > 0 then call('LTRIM', K[k + 5], format('%d', lined), '-1') end
  if ranked > 0 then call('ZREMRANGEBYRANK', K[k + 4], '0', format('%d', ranked - 1)) end
  for j = 1, #leases, 1000 do
    call('HSET', K[k + 3], unpack(leases, j, j + 999 < #leases and j + 999 or #leases))
  end
  local till = format('%.0f', now + A[8])
  if n > 3 then
    call('ZADD', K[k + 7], till, '!' .. fence)
    call('HSET', K[k + 8], fence, joined[h[7]], '#' .. fence, format('%d', n))
  elseif n == 1 then
    call('ZADD', K[k + 7], till, ids[1])
  elseif n == 2 then
    call('ZADD', K[k + 7], till, ids[1], till, ids[2])
  else
    call('ZADD', K[k + 7], till, ids[1], till, ids[2], till, ids[3])
  end
  if h[6] then
    call('HSET', K[k + 1], 'mark', version, 'awaited', '1', 'touched', at)
  else
    call('HSET', K[k + 1], 'mark', version, 'awaited', '1')
  end
end
for i = 1, #metas do -- of which nothing was taken
  local m = metas[i]
  if m[1] and (i == 1 or m[5] ~= '1' or now - m[1] > MARKEVERY) then
    call('HSET', K[9 * i - 8], 'mark', version, 'awaited', '1')
  end
end
if taken == 0 then return stamp .. char(there) .. at .. ';' .. ids .. ';' end
call('HSET', lanes, A[1], outcome)

local function two(size) return char((size - size % 256) / 256, size % 256) end
local lengths = width and two(width)
if not lengths then
  local list = {}
  for i = 1, #hauls do
    local recs = hauls[i][4]
    for j = 1, #recs do list[#list + 1] = two(#recs[j]) end
  end
  lengths = concat(list)
end
local head = stamp .. char(there + (rest > 0 and 1 or 0) + (width and 4 or 0)) .. at .. ';' .. ids .. lengths .. ';'
local reply = {head}
for i = 1, #hauls do
  local recs, n = hauls[i][4], hauls[i][2]
  for j = 1, n, 32 do reply[#reply + 1] = concat(recs, '', j, j + 31 < n and j + 31 or n) end
end
if taken <= 32 then return concat(reply) end
return reply
