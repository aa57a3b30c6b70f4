-- short: what the scripts begin with that carry out what most calls of apply are, without
-- all that the general script sets up: for each call of Redis runs through its whole
-- script, and all that this makes is garbage afterwards. They take a few keys of each queue, and
-- where they meet anything out of the ordinary they have written nothing and return
-- nothing: the caller goes to apply.lua. All is read and decided before the first write. Of
-- now and mark see base.lua; a clock that may be ahead (jump.lua) is out of the ordinary.
--
-- ARGV  1 queues, 2 calls, then the names of the queues, then each call: lane field, seq,
--       opened, its home queue, the field of the lane that must have carried out its part
--       of the same number before ("" for none), Txs; then its runs, as in apply.lua
-- Returns what apply.lua does, or nothing where that has to do it.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local byte, char, sub = string.byte, string.char, string.sub
local min = math.min

-- pack7 writes a number as 7 bytes, the highest first.
local function pack7(v)
  local g = v % 256; v = (v - g) / 256
  local f = v % 256; v = (v - f) / 256
  local e = v % 256; v = (v - e) / 256
  local d = v % 256; v = (v - d) / 256
  local c = v % 256; v = (v - c) / 256
  local b = v % 256
  return char((v - b) / 256, b, c, d, e, f, g)
end

local function text(n) return string.format('%.0f', n) end

-- count gives a number of meta. What is none fails here, in time.
local function count(v)
  local n = tonumber(v or 0)
  if n > -NEVER and n < NEVER then return n end
  error('no number')
end

-- ask gives a command a list in pieces.
local function ask(command, key, list)
  for i = 1, #list, 500 do call(command, key, unpack(list, i, min(i + 499, #list))) end
end

-- note keeps in mind that the i-th call, whose identity begins at ARGV[a], is on a lane
-- of a key.
local function note(lanes, key, a, i)
  if ARGV[a + 1] == '0' then return end -- it has none
  local l = lanes[key]
  if not l then
    l = {fields = {}, args = {}, calls = {}}
    lanes[key] = l
  end
  local n = #l.args + 1
  l.fields[2 * n - 1], l.fields[2 * n], l.args[n], l.calls[n] = ARGV[a], ARGV[a + 4], a, i
end

-- follow reports whether all calls that were noted are the next ones of lanes that are
-- known, each of another, and come after the part before them.
local function follow(lanes, now)
  for key, l in pairs(lanes) do
    local known, seen = call('HMGET', key, unpack(l.fields)), {}
    for i = 1, #l.args do
      local a, v, before = l.args[i], known[2 * i - 1], known[2 * i]
      local field, seq, last = ARGV[a], ARGV[a + 1], v and string.match(v, '^%d+')
      if not last or seen[field] or tonumber(seq) <= tonumber(last) 
        or math.abs(now - ARGV[a + 2]) > LANELIFE then
        return false
      end
      if ARGV[a + 4] ~= '' and not seen[ARGV[a + 4]] and (not before or string.match(before, '^%d+') ~= seq) then
        return false
      end
      seen[field] = true
    end
  end
  return true
end

-- recall has the lanes remember what each call came to, and gives the reply.
local function recall(lanes, reply, now)
  for key, l in pairs(lanes) do
    local list = {}
    for i = 1, #l.args do
      list[2 * i - 1], list[2 * i] = l.fields[2 * i - 1], ARGV[l.args[i] + 1] .. ':' .. reply[l.calls[i] + 1]
    end
    call('HSET', key, unpack(list))
  end
  for i = 2, #reply do reply[i] = 'N' .. reply[i] end
  reply[1] = text(now)
  return reply
end
