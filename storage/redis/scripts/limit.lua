-- limit: how many tasks of a queue its limit admits, by the rules of limit.go in package engine (rate.lua). The field
-- lines of the meta hash is negative while a queue has a limit or a partition, or its tasks without a partition rest,
-- so that the short claim leaves such a queue to claim.lua, and no step reads the limit of another queue.

local limits = {}

do
local OPERATOR, DECLARED, STARTS = rate.OPERATOR, rate.DECLARED, 'q:starts' -- fields of the side hash

-- look reads the limit of a queue for a claim that takes tasks of it. It leaves q.limit nil if no limit holds. It
-- ends the time in which lines is negative, and the rest of the tasks without a partition, if these are over.
function limits.look(q, takes)
  if q.m.lines >= 0 then return end
  if q.m.rest > 0 and not ring.resting(q) then set(q, 'rest', 0) end
  local v = call('HMGET', q[SIDE], OPERATOR, DECLARED, STARTS, rate.OWNED)
  q.alone = v[4] and true or false
  if not v[1] and not v[2] then
    if q.m.rest == 0 and call('ZCARD', q[RING]) == 0 then
      set(q, 'lines', mark)
      if q.alone then put(q, rate.OWNED, false) end
    end
    q.each = false
    return
  end
  local l = rate.inforce(v[1], v[2])
  q.each = l and l.each or false
  if not takes or not l or l.most + l.n == 0 and not l.each then return end
  l.slots, l.left = NEVER, NEVER
  if l.most > 0 then l.slots = l.most - max(call('HLEN', q[PENDING]) - 1, 0) end -- without PAD
  if l.n > 0 then
    l.last = rate.last(l.per)
    local ahead
    l.starts, l.sum, ahead = rate.unpacked(v[3] or '', l.per, l.last, q.m.jumped > 0)
    l.left = l.n - l.sum
    if ahead then put(q, STARTS, rate.pack(l.starts)) end -- else they would count as made now until then
  end
  q.limit = l
end

-- spent reports whether the rate of a queue admits nothing else to the claim: it is spent, or the claim has met a task
-- that costs more than is left. Nothing cheaper overtakes such a task.
function limits.spent(q) return q.limit and (q.limit.wants or q.limit.left <= 0) end

-- free returns how many tasks of a queue may start now, if they cost nothing.
function limits.free(q) return not q.limit and NEVER or limits.spent(q) and 0 or q.limit.slots end

-- ahead returns how many tasks of a queue a claim may take by now that do not start at once: the tasks in the first
-- half of its slots, if it has no other bound.
function limits.ahead(q)
  local l = q.limit
  return (l.n > 0 or l.each) and 0 or l.slots - l.most + floor(l.most / 2)
end

-- rated reports whether the rate of a queue decides about the start of another task.
function limits.rated(q) return q.limit and q.limit.starts and limits.free(q) > 0 end

-- reads returns how many records a claim of n tasks of a queue reads at once: not many more than the rate admits.
function limits.reads(q, n) return limits.rated(q) and min(n, q.limit.left) + 1 or n end

-- admits reports whether the rate of a queue admits the start of the task of a record; doubted is true if it is
-- a suspect. If not, it notes how much of the rate the task wants.
function limits.admits(q, rec, doubted)
  local l = q.limit
  if not l or not l.starts then return true end
  l.cost = min(part.cost(rec), l.n)
  if l.cost > l.left then l.wants, l.doubted = l.cost, doubted end
  return not limits.spent(q)
end

-- charge charges the start of the task that was admitted last.
function limits.charge(q)
  local l = q.limit
  if not l then return end
  l.slots = l.slots - 1
  if l.starts then l.left = l.left - l.cost end
end

-- bounds reports whether the limit of a queue admits no task of a claim, or not the next task; starts is how many
-- tasks of the claim start, -1 if the caller wants none to start.
function limits.bounds(q, starts)
  return q.limit and (limits.free(q) <= 0 or starts < 0 and limits.ahead(q) <= 0)
end

-- start counts the starts that the claim has charged.
function limits.start(q)
  local l = q.limit
  local charged = l and l.starts and l.n - l.left - l.sum or 0
  if charged == 0 then return end
  l.sum = l.sum + charged
  rate.add(l.starts, l.last, charged)
  put(q, STARTS, rate.pack(l.starts))
end

-- next returns when the rate of a queue admits the next start, 0 if the rate admits one now or the queue has
-- no free slot.
function limits.next(q)
  local l = q.limit
  if not l or l.slots <= 0 or l.left > 0 and not l.wants then return 0 end -- without a rate left is NEVER
  return rate.next(l.starts, l.sum, l.left > 0 and l.wants or 1, l.n, l.per)
end

-- change sets the limits of a queue, that of the operator and the declared one: '' for none, nil for a limit that
-- stays.
function limits.change(q, operator, declared)
  if operator then put(q, OPERATOR, operator ~= '' and operator) end
  if declared then put(q, DECLARED, declared ~= '' and declared) end
  operator, declared = aside(q, OPERATOR), aside(q, DECLARED)
  local l = rate.inforce(operator, declared)
  q.each = nil
  if not l or l.n == 0 then put(q, STARTS, false) end
  if operator or declared then set(q, 'lines', -1)
  elseif q.m.lines < 0 and q.m.rest == 0 and call('ZCARD', q[RING]) == 0 then
    set(q, 'lines', mark)
    put(q, rate.OWNED, false)
  end
end
end

