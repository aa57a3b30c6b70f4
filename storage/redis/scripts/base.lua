-- base: what every script of a queue begins with: the names of its keys and of what is
-- in them, and a few functions. It is kept short, for each call runs through all of it.
--
-- Numbers are microseconds or counters below 2^53, which Lua holds exactly. What is written
-- in capitals and defined nowhere here comes from Go: see constants in scripts.go.
--
-- There are two times. now is the server's clock as it is: moments are made from it and
-- compared with it. mark only grows, and gives versions: it is past the mark that each queue
-- keeps of its last step, and the clock where that is more.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local byte, char, sub, find = string.byte, string.char, string.sub, string.find
local floor, min, abs = math.floor, math.min, math.abs

-- The keys of one queue, in the order of keys.go.
local META, TASKS, PENDING, SIDE, UNIQUE, WINDOWS, DAMAGED, LANES, OPENED = 1, 2, 3, 4, 5, 6, 7, 8, 9
local WAITING, SUSPECTS, SCHEDULED, RETRY, LEASES, COMPLETED, CANCELLED, DEAD, CURSORS, CLAIMS =
  10, 11, 12, 13, 14, 15, 16, 17, 18, 19
local LINE, VOIDS, BLOCK = 20, 21, 21

-- The flags of a lease, the byte behind its fence: a token of 16 bytes and a version of 7.
local ASIDE, RECORD, GROUPED = 4, 8, 16 -- STARTED is 1, ASKED 2

-- Tasks that one claim took from a queue share one deadline, as a group: its fence behind
-- ALARM is its member of the leases. The claims hash has the ids of a group, and behind
-- COUNT how many are still in it. Whatever ends a lease or moves its deadline takes the
-- task out of its group. Its lease has its rank in the claim behind the flags then, in two
-- bytes: what is recovered goes back in the order of the claims.
local ALARM, COUNT = '!', '#'
local SINGLES = 4 -- fewer are no group

-- Where tasks stand by a moment, what stands for each is a place, a number that grows, and its
-- id: of those with the same moment that came first which a step put there first. The record
-- has the place behind its header. It can be an old one: a promotion leaves records alone.
local PLACED = {s = true, r = true, c = true, x = true, d = true}

-- A field of the pending hash so long that Redis never packs the hash, which is slow to
-- fill: a claim would begin that anew each time the last task was settled.
local PAD = string.rep('-', 65)

-- In waiting what comes before the line is up to here: of a higher priority, or of priority 0
-- and gone to its head. The others are of a lower one. See place in lib.lua.
local BEHIND = '140737488355328'


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

-- ask gives a command a list in pieces and adds up what it answers.
local function ask(command, key, list)
  local n = 0
  for i = 1, #list, 500 do n = n + call(command, key, unpack(list, i, min(i + 499, #list))) end
  return n
end

-- follows reports whether a call is the next one of a lane that is known, as most are;
-- admit in lib.lua knows what else it may be.
local function follows(key, field, seq, opened, now)
  local v = call('HGET', key, field)
  local last = v and tonumber(sub(v, 1, (find(v, ':', 1, true) or 1) - 1))
  return last and tonumber(seq) > last and abs(now - opened) <= LANELIFE
end

-- packed gives the length of each text in 4 bytes, and the texts in a few pieces: one
-- long text costs Lua more than it saves, and each of its own costs the client.
local function packed(texts)
  local lengths, known, pieces = {}, {}, {}
  for i = 1, #texts do
    local n = #texts[i]
    local v = known[n]
    if not v then
      v = char(floor(n / 16777216), floor(n / 65536) % 256, floor(n / 256) % 256, n % 256)
      if n < 65536 then known[n] = v end -- an index that no Lua takes for a place in an array
    end
    lengths[i] = v
  end
  for i = 1, #texts, 32 do pieces[#pieces + 1] = table.concat(texts, '', i, min(i + 31, #texts)) end
  return table.concat(lengths), pieces
end

