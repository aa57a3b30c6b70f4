-- base: the beginning of all scripts that work on queues. It is short, because Redis executes all of
-- it at each call.
--
-- Numbers are microseconds or counters below 2^53, which Lua represents exactly. Words in capitals
-- without a definition in these files are constants from Go: see constants in scripts.go. Among them
-- are the places of the keys of a queue in KEYS, which has BLOCK keys for each queue.
--
-- There are two times. now is the server's clock: scripts make moments from it and compare them with
-- it. mark only grows, and versions are made from it: it is the clock, but at least one more than the mark
-- that each queue of the call keeps of its last step.

local KEYS, ARGV, call = KEYS, ARGV, redis.call
local byte, char, sub, find = string.byte, string.char, string.sub, string.find
local floor, min, max = math.floor, math.min, math.max

local function text(n) return string.format('%.0f', n) end

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
