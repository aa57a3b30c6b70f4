-- enqueue: what many callers who enqueue one by one come to: calls of one insert each, into
-- one queue and alike in all but id and payload, on which nothing hangs: due now, without
-- a unique key or a large payload. It is short, for most of what a lone call costs is what
-- its script sets up. Where a lane is new, an id taken or the call no ordinary one it has
-- written nothing, and the caller goes to apply.lua.
--
-- KEYS  meta, tasks, the line or, where their priority is not 0, waiting, lanes
-- ARGV  1 first 3 bytes of the records, 2 where their priority begins in waiting or 0,
--       3 channel, 4 and 5 when the oldest and the newest lane were opened, then of each call, no
--       two of which share a lane or an id: lane field, seq, id, the record behind its 17th byte
-- Returns  the mark before the first call (7 bytes), each other's being one more than that of
--       the call before it; or nothing where apply.lua has to do it.

local call, A, K, char, format, sub, find = redis.call, ARGV, KEYS, string.char, string.format, string.sub, string.find
local lined = A[2] == '0'
local turn = lined and 'tail' or 'turn' -- see lib.lua
local m, t, n = call('HMGET', K[1], 'mark', 'touched', 'enqueued', turn, 'awaited'), call('TIME'), (#A - 5) / 4
local mark, touched = m[1], m[2]
if not mark or not touched then return nil end
local now = t[1] * 1000000 + t[2]
-- The mark is never before touched: a clock that may be ahead (jump.lua) is left here too.
if now - touched > 60000000 or now - A[4] > LANELIFE or A[5] - now > LANELIFE then return nil end
mark = mark + 0
local tail, enqueued = (m[4] or 0) + 0, (m[3] or 0) + n
if not (mark < NEVER) or mark - now > JUMPBACK then return nil end
if mark < now then mark = now else mark = mark + 1 end
local g, h = mark % 256, now % 256
if g + n > 255 then -- the versions of the calls differ in their last byte alone
  mark = mark + 256 - g
  g = 0
end
local function six(r)
  local f = r % 256; r = (r - f) / 256
  local e = r % 256; r = (r - e) / 256
  local d = r % 256; r = (r - d) / 256
  local c = r % 256; r = (r - c) / 256
  local b = r % 256
  return char((r - b) / 256, b, c, d, e, f)
end
local high = six((mark - g) / 256)
local born = (now - h == mark - g and high or six((now - h) / 256)) .. char(h)

-- The first write tells whether Redis permits any, which a full one does not; then the
-- general script says why. Before it all is read and decided: the lane is known, this its
-- next call, and the id free.
if n == 1 then
  local field, seq, id, v = A[6], A[7], A[8], call('HGET', K[4], A[6])
  if not v then return nil end
  local last = sub(v, 1, find(v, ':', 1, true) - 1)
  if #last > #seq or #last == #seq and last >= seq then return nil end
  if redis.pcall('HSETNX', K[2], id, A[1] .. high .. char(g + 1) .. born .. A[9]) ~= 1 then return nil end
  local placed
  if lined then
    placed = redis.pcall('RPUSH', K[3], id)
  else
    placed = redis.pcall('ZADD', K[3], format('%.0f', A[2] + tail + 1), id)
  end
  if type(placed) == 'table' then -- a key of a wrong type
    call('HDEL', K[2], id)
    return placed
  end
  call('HSET', K[4], field, seq .. ':A' .. high .. char(g) .. '*w')
else
  local fields, ids = {}, {}
  for i = 1, n do fields[i], ids[i] = A[4 * i + 2], A[4 * i + 4] end
  local lanes, found = call('HMGET', K[4], unpack(fields)), call('HMGET', K[2], unpack(ids))
  for i = 1, n do
    local last, seq = lanes[i], A[4 * i + 3]
    if not last or found[i] then return nil end
    last = sub(last, 1, find(last, ':', 1, true) - 1)
    if #last > #seq or #last == #seq and last >= seq then return nil end
  end
  call(lined and 'LLEN' or 'ZCARD', K[3]) -- a key of a wrong type fails here, in time
  local list, basis, lead = {}, A[2] + tail, A[1]
  for i = 1, n do
    list[2 * i - 1], list[2 * i] = ids[i], lead .. high .. char(g + i) .. born .. A[4 * i + 5]
  end
  if type(redis.pcall('HSET', K[2], unpack(list))) == 'table' then return nil end
  if lined then
    call('RPUSH', K[3], unpack(ids))
  else
    for i = 1, n do list[2 * i - 1], list[2 * i] = format('%.0f', basis + i), ids[i] end
    call('ZADD', K[3], unpack(list))
  end
  for i = 1, n do
    list[2 * i - 1], list[2 * i] = fields[i], A[4 * i + 3] .. ':A' .. high .. char(g + i - 1) .. '*w'
  end
  call('HSET', K[4], unpack(list))
end
local at = format('%.0f', mark + n)
enqueued = format('%d', enqueued)
if m[5] == '1' then
  call('HSET', K[1], 'mark', at, 'enqueued', enqueued, turn, format('%d', tail + n), 'awaited', '0')
  redis.pcall('PUBLISH', A[3], 'w')
else
  call('HSET', K[1], 'mark', at, 'enqueued', enqueued, turn, format('%d', tail + n))
end
return high .. char(g)
