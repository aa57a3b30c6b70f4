-- base: what the scripts that work on queues begin with. It is kept short, for each call runs
-- through all of it.
--
-- Numbers are microseconds or counters below 2^53, which Lua holds exactly. Words in capitals
-- that are defined nowhere here come from Go: see constants in scripts.go. Among them are the
-- places of the keys of a queue in KEYS, where BLOCK keys stand for each.
--
-- There are two times. now is the server's clock as it is: moments are made from it and
-- compared with it. mark only grows, and gives versions: it is past the mark that each queue
-- keeps of its last step, and the clock where that is more.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local byte, char, sub, find = string.byte, string.char, string.sub, string.find
local floor, min, max, abs = math.floor, math.min, math.max, math.abs

local function text(n) return string.format('%.0f', n) end

-- sane gives the number that a text of the meta hash is, nil where it is none: a mark beyond
-- all others must not become that of the queues in the same step.
local function sane(v)
  local n = tonumber(v)
  return n and n > -NEVER and n < NEVER and n or nil
end

-- ask gives a command a list in pieces and adds up what it answers.
local function ask(command, key, list)
  local n = 0
  for i = 1, #list, 500 do n = n + call(command, key, unpack(list, i, min(i + 499, #list))) end
  return n
end

-- lookup is an HMGET of any number of fields.
local function lookup(key, fields)
  if #fields == 0 then return {} end
  if #fields <= 500 then return call('HMGET', key, unpack(fields)) end
  local all = {}
  for i = 1, #fields, 500 do
    local last = min(i + 499, #fields)
    local part = call('HMGET', key, unpack(fields, i, last))
    for j = 1, last - i + 1 do all[i + j - 1] = part[j] end
  end
  return all
end
