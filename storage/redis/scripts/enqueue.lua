-- enqueue: one insert on which nothing hangs, alone in its call: due now, without a unique
-- key or a large payload. It is short, for most of what a lone call costs is what its
-- script sets up. Where the lane is new, the id taken or the call no ordinary one it has
-- written nothing, and the caller goes to apply.lua.
--
-- KEYS  meta, tasks, waiting, lanes
-- ARGV  1 lane field, 2 seq, 3 opened, 4 id, 5 first 3 bytes of its record, 6 the record
--       behind its 17th byte, 7 where its priority begins in waiting, 8 channel
-- Returns what apply.lua does, or nothing where that has to do it.

local call, char = redis.call, string.char
local KEYS, ARGV = KEYS, ARGV

local last = call('HGET', KEYS[4], ARGV[1])
local m = call('HMGET', KEYS[1], 'mark', 'touched', 'enqueued', 'tail')
if not last or not m[1] or not m[2] then return nil end
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
if now - m[2] > 60000000 or now - ARGV[3] > 600000000 then return nil end -- see base.lua
if tonumber(ARGV[2]) <= tonumber(string.match(last, '^%d+')) then return nil end
if now <= tonumber(m[1]) then now = m[1] + 1 end

-- The time before it and its own, in 7 bytes: pack7 in base.lua, for two that follow
-- each other.
local v = now
local g = v % 256; v = (v - g) / 256
if g == 255 then now = now + 1; g = 0; v = now / 256 end
local f = v % 256; v = (v - f) / 256
local e = v % 256; v = (v - e) / 256
local d = v % 256; v = (v - d) / 256
local c = v % 256; v = (v - c) / 256
local b = v % 256
local high = char((v - b) / 256, b, c, d, e, f)
local stamp = high .. char(g + 1)

-- Numbers that are arguments keep all their digits.
local tail = (m[4] or 0) + 1
if call('HSETNX', KEYS[2], ARGV[4], ARGV[5] .. stamp .. stamp .. ARGV[6]) == 0 then return nil end
local placed = redis.pcall('ZADD', KEYS[3], ARGV[7] + tail, ARGV[4])
if type(placed) == 'table' then -- a key of a wrong type
  call('HDEL', KEYS[2], ARGV[4])
  return placed
end
local outcome = 'A' .. high .. char(g) .. '*w'
call('HSET', KEYS[4], ARGV[1], ARGV[2] .. ':' .. outcome)
call('HSET', KEYS[1], 'mark', now + 1, 'enqueued', (m[3] or 0) + 1, 'tail', tail)
redis.pcall('PUBLISH', ARGV[8], 'w')
return {now + 1, 'N' .. outcome}
