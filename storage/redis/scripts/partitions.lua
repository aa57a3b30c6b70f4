-- partitions: reads a page of the partitions of a queue. It writes nothing.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 key of one partition, "" for all, 2 the last key of the page before, "" for the first page, 3 page size
-- Returns  {now, 1 if there are more partitions, else 0, then for each partition: its key, how many tasks stand in
--       its line, and when its pause ends: -1 if it has no end, 0 if the partition is not paused}

local q = openall(1)[1]
local most = tonumber(ARGV[3])
local reply = {text(now), 0}

-- paused returns a function that returns the key of the next paused partition behind a key, false behind the last,
-- and goes on to the one after it if on is set. They stand in the order of their keys at the end of the ring.
local function paused(after)
  local low = call('ZCOUNT', q[RING], '-inf', '(' .. text(LISTED))
  local all = call('ZCARD', q[RING])
  local high, list, i = all, {}, 1
  while low < high do
    local middle = floor((low + high) / 2)
    local before = ring.before('q' .. after, call('ZRANGE', q[RING], middle, middle)[1])
    if before then high = middle else low = middle + 1 end
  end
  return function(on)
    if on then i = i + 1 end
    if not list[i] and low < all then
      list, i = call('ZRANGE', q[RING], low, low + most), 1
      low = low + #list
    end
    return list[i] and sub(list[i], 2)
  end
end

-- tell adds a partition to the reply, unless it has no tasks and its pause is over.
local function tell(key)
  local line = 'p' .. key
  local size, score = call('ZLEXCOUNT', q[LINES], ring.whole(line)), tonumber(call('ZSCORE', q[RING], line) or nil)
  local till = score and score > now and score or 0
  if size == 0 and till == 0 then return end
  if #reply >= 2 + 3 * most then
    reply[2] = 1
    return true
  end
  for _, v in ipairs({key, text(size), text(till >= NEVER and -1 or till)}) do reply[#reply + 1] = v end
end

if ARGV[1] ~= '' then
  tell(ARGV[1])
  return reply
end
local rest, line = paused(ARGV[2]), 'p' .. ARGV[2]
if ARGV[2] == '' then line = 'o' end
repeat
  line = byname.lines(q[LINES], line, 1, true)[1]
  while line and byte(line, 1) < 112 do line = byname.lines(q[LINES], line, 1, true)[1] end
  local key, next = line and ring.is(line) and sub(line, 2), rest()
  while next and (not key or ring.before(next, key)) do
    if tell(next) then return reply end
    next = rest(true)
  end
  if key and next == key then rest(true) end
  if key and tell(key) then return reply end
until not key
return reply
