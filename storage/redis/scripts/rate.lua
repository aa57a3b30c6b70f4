-- rate: the texts of limits, and the starts that count for a rate, by the rules of limit.go in package engine. A queue
-- and each of its partitions may have a rate. The side hash has the texts and the packed starts as that file writes
-- them. It has the field OWNED since a partition of the queue got a limit of its own, or a claim ended within a turn, until
-- the ring is empty, so that claims of other queues read neither.

local rate = {}

do
rate.OPERATOR, rate.DECLARED, rate.OWNED = 'q:operator', 'q:declared', 'q:owned' -- fields of the side hash

local WIDTH = 12 -- the bytes of a packed start
local NUMBERS = '([+-]?%d+) ([+-]?%d+) ([+-]?%d+)'

-- bounds returns a Concurrency, N and Per, nil for texts or numbers that no limit has.
local function bounds(most, n, per)
  most, n, per = tonumber(most or ''), tonumber(n or ''), tonumber(per or '')
  if not (most and n and per) or most < 0 or most > LIMITMOST then return nil end
  if (n ~= 0 or per ~= 0) and (n < 1 or n > RATEMOST or per < PERLEAST or per > PERMOST) then return nil end
  return {most = most, n = n, per = per}
end

-- parse returns the limit of a text, and as its field each that of partitions if it has one; it returns nil for the texts
-- that parseLimit refuses.
local function parse(v)
  local most, n, per, rest = string.match(v or '', '^' .. NUMBERS .. '(.*)$')
  local l = bounds(most, n, per)
  if not l or rest == '' then return l end
  local a, b, c, weight = string.match(rest, '^ ' .. NUMBERS .. ' ([+-]?%d+)$')
  local each = bounds(a, b, c)
  weight = tonumber(weight or '')
  if not each or weight < 0 or weight > WEIGHTMOST or each.most + each.n + weight == 0 then return nil end
  each.weight, each.bounds, l.each = weight, true, each
  return l
end

-- own returns the limit of one partition that a text has, nil for a text that is no such limit.
function rate.own(v)
  local l = parse(v)
  return l and l.most + l.n == 0 and (l.each or {most = 0, n = 0, per = 0, weight = 0, bounds = false}) or nil
end

-- owned reports whether a partition of a queue may have a limit of its own, or a turn that goes on.
function rate.owned(q)
  if q.alone == nil then q.alone = q.m.lines < 0 and aside(q, rate.OWNED) and true or false end
  return q.alone
end

-- inforce returns the limit that holds, nil if neither text is that of a limit.
function rate.inforce(operator, declared)
  return parse(operator) or parse(declared and string.match(declared, '^[^;]*'))
end

-- each returns the bounds of the partitions of a queue, false for none.
function rate.each(q)
  if q.each == nil then
    local l = q.m.lines < 0 and rate.inforce(aside(q, rate.OPERATOR), aside(q, rate.DECLARED))
    q.each = l and l.each or false
  end
  return q.each
end

-- last returns the last moment of the part of a rate's Per that holds now.
function rate.last(per)
  local width = floor((per + RATEPARTS - 1) / RATEPARTS)
  return now - now % width + width - 1
end

-- unpacked returns the starts of a text that count for a rate now, as the last moment and the costs of the starts
-- of one part of time after the other. It also returns their sum, and the last moment of those from after the part of
-- now, which ends at the moment last: these count as made now. That is false if there are none. While timed work waits
-- after a jump of the clock, no start ceases to count.
function rate.unpacked(v, per, last, waits)
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
  return list, sum + current, before > last and before
end

-- pack returns the text of such a list.
function rate.pack(list)
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

-- add adds a start of a cost, in the part that ends at the moment last, to such a list.
function rate.add(list, last, cost)
  if cost == 0 then return end
  if list[#list - 1] == last then list[#list] = list[#list] + cost
  else list[#list + 1], list[#list + 2] = last, cost end
end

-- next returns the moment from which a rate admits a start of the cost wants beside the starts of a list with a sum. It
-- returns 0 if the rate admits that start now.
function rate.next(list, sum, wants, n, per)
  for i = 1, #list, 2 do
    if sum + wants <= n then return 0 end
    sum = sum - list[i + 1]
    if sum + wants <= n then return list[i] + per end
  end
  return 0
end
end
