-- limit: how many tasks of a queue its limit admits, by the rules of limit.go in package engine. The side
-- hash has the texts of the limits and the packed starts as that file writes them. The field lines of the meta
-- hash is negative while a queue has a limit or a partition, so that the short claim leaves such a queue to
-- claim.lua, and no step looks for the limit of another queue.

local limits = {}

do
local OPERATOR, DECLARED, STARTS = 'q:operator', 'q:declared', 'q:starts' -- fields of the side hash
local WIDTH = 12 -- the bytes of a packed start

-- parse returns the Concurrency, N and Per of a text; it returns nil for the texts that parseLimit refuses.
local function parse(v)
  local most, n, per = string.match(v or '', '^([+-]?%d+) ([+-]?%d+) ([+-]?%d+)$')
  most, n, per = tonumber(most or ''), tonumber(n or ''), tonumber(per or '')
  if not (most and n and per) or most < 0 or most > LIMITMOST then return nil end
  if n == 0 and per == 0 then return most, n, per end
  if n < 1 or n > RATEMOST or per < PERLEAST or per > PERMOST then return nil end
  return most, n, per
end

-- inforce returns the Concurrency, N and Per that hold, nil where neither text is that of a limit.
local function inforce(operator, declared)
  local most, n, per = parse(operator)
  if most then return most, n, per end
  return parse(declared and string.match(declared, '^[^;]*'))
end

-- unpacked returns the starts of a text that count for a rate now, as the last moment and the costs of the starts
-- of one part of time after the other. It also returns their sum, and whether some are from after the part of
-- now, which ends at the moment last: these count as made now. While timed work waits after a jump of the clock,
-- no start ceases to count.
local function unpacked(v, per, last, waits)
  local list, sum, current, before = {}, 0, 0, 0
  if #v % WIDTH > 0 or #v > STARTSMOST * WIDTH then return list, 0, false end
  for i = 1, #v, WIDTH do
    local z, a, b, c, d, e, f, g, h, j, k, l = byte(v, i, i + WIDTH - 1)
    local at = ((((((z * 256 + a) * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    local n = ((h * 256 + j) * 256 + k) * 256 + l
    if at <= before or at > NEVER or n > RATEMOST then return {}, 0, false end -- damaged
    before = at
    if at >= last then current = current + n
    elseif waits or at + per > now then
      list[#list + 1], list[#list + 2], sum = at, n, sum + n
    end
  end
  if current > 0 then list[#list + 1], list[#list + 2] = last, current end
  return list, sum + current, before > last
end

-- pack returns the text of such a list.
local function pack(list)
  local v = {}
  while #list > 2 * STARTSMOST do -- the oldest ones count as made in one part
    list[4] = list[2] + list[4]
    table.remove(list, 1)
    table.remove(list, 1)
  end
  for i = 1, #list, 2 do
    local n = min(list[i + 1], RATEMOST)
    v[#v + 1] = char(0) .. pack7(list[i]) .. pack2(floor(n / 65536)) .. pack2(n % 65536)
  end
  return table.concat(v)
end

-- look reads the limit of a queue for a claim that takes tasks of it. It leaves q.limit nil where no limit holds. It
-- ends the time in which lines is negative, if that is over.
function limits.look(q, takes)
  if q.m.lines >= 0 then return end
  local v = call('HMGET', q[SIDE], OPERATOR, DECLARED, STARTS)
  if not v[1] and not v[2] then
    if call('ZCARD', q[RING]) == 0 then set(q, 'lines', mark) end
    return
  end
  if not takes then return end
  local most, n, per = inforce(v[1], v[2])
  if not most or most + n == 0 then return end
  local l = {slots = NEVER, left = NEVER, n = n, per = per}
  if most > 0 then l.slots = most - max(call('HLEN', q[PENDING]) - 1, 0) end -- without PAD
  if n > 0 then
    local width = floor((per + RATEPARTS - 1) / RATEPARTS)
    l.last = now - now % width + width - 1
    local ahead
    l.starts, l.sum, ahead = unpacked(v[3] or '', per, l.last, q.m.jumped > 0)
    l.left = n - l.sum
    if ahead then put(q, STARTS, pack(l.starts)) end -- else they would count as made now until then
  end
  q.limit = l
end

-- spent reports whether the rate of a queue admits nothing else to the claim: it is spent, or the claim has met a task
-- that costs more than is left. Nothing cheaper overtakes such a task.
function limits.spent(q) return q.limit and (q.limit.wants or q.limit.left <= 0) end

-- free returns how many tasks of a queue may start now, if they cost nothing.
function limits.free(q) return not q.limit and NEVER or limits.spent(q) and 0 or q.limit.slots end

-- rated reports whether the rate of a queue decides about the start of another task.
function limits.rated(q) return q.limit and q.limit.starts and limits.free(q) > 0 end

-- reads returns how many records a claim of n tasks of a queue reads at once: not many more than the rate admits.
function limits.reads(q, n) return limits.rated(q) and min(n, q.limit.left) + 1 or n end

-- admits reports whether the rate of a queue admits the start of the task of a record. If not, it notes how much of the
-- rate the task wants.
function limits.admits(q, rec)
  local l = q.limit
  if not l or not l.starts then return true end
  l.cost = min(part.cost(rec), l.n)
  if l.cost > l.left then l.wants = l.cost end
  return not limits.spent(q)
end

-- charge charges the start of the task that was admitted last.
function limits.charge(q)
  local l = q.limit
  if not l then return end
  l.slots = l.slots - 1
  if l.starts then l.left = l.left - l.cost end
end

-- bounds reports whether the limit of a queue admits no task of a claim, or not the one that comes next; starts is how
-- many tasks of the claim start, -1 if the caller wants none to start.
function limits.bounds(q, starts) return q.limit and (starts < 0 or limits.free(q) <= 0) end

-- start counts the starts that the claim has charged.
function limits.start(q)
  local l = q.limit
  local charged = l and l.starts and l.n - l.left - l.sum or 0
  if charged == 0 then return end
  local starts = l.starts
  l.sum = l.sum + charged
  if starts[#starts - 1] == l.last then starts[#starts] = starts[#starts] + charged
  else starts[#starts + 1], starts[#starts + 2] = l.last, charged end
  put(q, STARTS, pack(starts))
end

-- next returns when the rate of a queue admits the next start, 0 where the rate admits one now or the queue has
-- no free slot.
function limits.next(q)
  local l = q.limit
  if not l or l.slots <= 0 or l.left > 0 and not l.wants then return 0 end -- without a rate left is NEVER
  local sum, wants = l.sum, l.left > 0 and l.wants or 1
  for i = 1, #l.starts, 2 do
    sum = sum - l.starts[i + 1]
    if sum + wants <= l.n then return l.starts[i] + l.per end
  end
  return 0
end

-- change sets the limit of a queue, that of the operator or the declared one, '' for none.
local function change(q, field, v)
  put(q, field, v ~= '' and v)
  local operator, declared = aside(q, OPERATOR), aside(q, DECLARED)
  local _, n = inforce(operator, declared)
  if (n or 0) == 0 then put(q, STARTS, false) end
  if operator or declared then set(q, 'lines', -1)
  elseif q.m.lines < 0 and call('ZCARD', q[RING]) == 0 then set(q, 'lines', mark) end
end

function limits.operate(q, v) change(q, OPERATOR, v) end

function limits.declare(q, v) change(q, DECLARED, v) end
end

