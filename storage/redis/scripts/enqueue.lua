-- enqueue: what many callers who enqueue one by one come to: calls of one insert each, into
-- one queue and alike in all but id and payload, on which nothing hangs: due now, without
-- a unique key or a large payload. It is short, for most of what a lone call costs is what
-- its script sets up. Where a lane is new, an id taken or the call no ordinary one it has
-- written nothing, and the caller goes to apply.lua.
--
-- KEYS  meta, tasks, waiting, lanes
-- ARGV  1 first 3 bytes of the records, 2 where their priority begins in waiting, 3
--       channel, then of each call: lane field, seq, opened, id, the record behind its
--       17th byte
-- Returns what apply.lua does, or nothing where that has to do it.

local call, char, KEYS, ARGV = redis.call, string.char, KEYS, ARGV
local match, tonumber = string.match, tonumber

local m = call('HMGET', KEYS[1], 'mark', 'touched', 'enqueued', 'tail')
if not m[1] or not m[2] then return nil end
local n, fields, ids = (#ARGV - 3) / 5, {}, {}
for i = 1, n do fields[i], ids[i] = ARGV[5 * i - 1], ARGV[5 * i + 2] end
local lanes = call('HMGET', KEYS[4], unpack(fields))
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
if now - m[2] > 60000000 then return nil end -- see touched in lib.lua
for i = 1, n do
  local last, a = lanes[i], 5 * i - 1
  if not last or tonumber(ARGV[a + 1]) <= tonumber(match(last, '^%d+')) or now - ARGV[a + 2] > 600000000 then
    return nil -- the lane is new, this is no new call, or past storage.LaneLife
  end
end
if n > 1 then
  local found, seen = call('HMGET', KEYS[2], unpack(ids)), {}
  for i = 1, n do
    if found[i] or seen[ids[i]] or seen[fields[i]] then return nil end
    seen[ids[i]], seen[fields[i]] = true, true
  end
  call('ZCARD', KEYS[3]) -- a key of a wrong type fails here, in time
end
if now <= tonumber(m[1]) then now = m[1] + 1 end

-- The times in 7 bytes: those before each call and its own, which follow each other.
local high, low
local function digits(v)
  low = v % 256; v = (v - low) / 256
  local f = v % 256; v = (v - f) / 256
  local e = v % 256; v = (v - e) / 256
  local d = v % 256; v = (v - d) / 256
  local c = v % 256; v = (v - c) / 256
  local b = v % 256
  high = char((v - b) / 256, b, c, d, e, f)
end
digits(now)

-- Numbers that are arguments keep all their digits.
local tail, reply, records, places, known = m[4] or 0, {0}, {}, {}, {}
for i = 1, n do
  local a, before = 5 * i - 1, high .. char(low)
  now, low = now + 1, low + 1
  if low == 256 then digits(now) end
  local stamp, outcome = high .. char(low), 'A' .. before .. '*w'
  records[2 * i - 1], records[2 * i] = ids[i], ARGV[1] .. stamp .. stamp .. ARGV[a + 4]
  places[2 * i - 1], places[2 * i] = ARGV[2] + tail + i, ids[i]
  known[2 * i - 1], known[2 * i] = fields[i], ARGV[a + 1] .. ':' .. outcome
  reply[i + 1] = 'N' .. outcome
end
-- The first write tells whether Redis permits any, which a full one does not; then the
-- general script says why.
if n > 1 then
  local done = redis.pcall('HSET', KEYS[2], unpack(records))
  if type(done) == 'table' then return nil end
  call('ZADD', KEYS[3], unpack(places))
else
  if redis.pcall('HSETNX', KEYS[2], records[1], records[2]) ~= 1 then return nil end
  local placed = redis.pcall('ZADD', KEYS[3], places[1], places[2])
  if type(placed) == 'table' then -- a key of a wrong type
    call('HDEL', KEYS[2], records[1])
    return placed
  end
end
call('HSET', KEYS[4], unpack(known))
call('HSET', KEYS[1], 'mark', now, 'enqueued', (m[3] or 0) + n, 'tail', tail + n)
redis.pcall('PUBLISH', ARGV[3], 'w')
reply[1] = now
return reply
