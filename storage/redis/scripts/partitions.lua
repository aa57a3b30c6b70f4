-- partitions: reads a page of the partitions of a queue. It writes nothing.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 key of one partition, "" for all, 2 the last key of the page before, "" for the first page, 3 page size
-- Returns  {now, the last key that the page has read if there are more partitions, else "", 1 during a wait of the
--       clock, else 0, the limit of the operator and the declared one, "" for none, then for each partition: its key, how many tasks stand in its
--       line, and its field of the side hash, "" for none (ring.lua)}

local q = openall(1)[1]
local most = tonumber(ARGV[3])
local HEAD = 5 -- the values before the partitions
local MOSTLOOKED = 1001 -- how many partitions a page reads: one more than the largest page has
local looked, last = 0, ''
local reply = {text(now), '', q.m.jumped > 0 and 1 or 0, aside(q, rate.OPERATOR) or '', aside(q, rate.DECLARED) or ''}

-- unready returns a function that returns the key of the next partition behind a key that is not among the ready ones,
-- false behind the last, and goes on to the next one if on is set. They stand in the order of their keys at the end
-- of the ring.
local function unready(after)
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

-- tell adds a partition to the reply, unless it has no tasks and all else of it is over. It returns true if the page ends
-- before the partition.
local function tell(key)
  if looked == MOSTLOOKED then
    reply[2] = last
    return true
  end
  looked = looked + 1
  local line = 'p' .. key
  local size, v = call('ZLEXCOUNT', q[LINES], ring.whole(line)), aside(q, ring.field(line))
  local paused, rest, running, starts, own = ring.unpacked(v)
  local each = own ~= '' and rate.own(own) or rate.each(q)
  local rated = each and each.n > 0 and starts ~= ''
  local list = rated and rate.unpacked(starts, each.per, rate.last(each.per), q.m.jumped > 0) or {}
  local over = size == 0 and paused <= now and rest <= now and running + #list + #own == 0
  if not over and #reply >= HEAD + 3 * most then
    reply[2] = last
    return true
  end
  last = key
  for _, x in ipairs(over and {} or {key, text(size), v or ''}) do reply[#reply + 1] = x end
end

if ARGV[1] ~= '' then
  tell(ARGV[1])
  return reply
end
local rest, line = unready(ARGV[2]), 'p' .. ARGV[2]
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
