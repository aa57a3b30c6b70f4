-- reindex: the last part of the first step of claim.lua: it finds records that have lost their place.
--
-- A record that is in none of the sets and not in the line is unindexed. No step leaves one behind. But a
-- crash can tear the append-only file within the writes of a step. Redis then executes the first of these
-- writes at its next start but one, before the steps that really followed (commit in commit.lua). A claim
-- whose LTRIM happens twice takes their entries from tasks that wait at the head of the line.
--
-- So once in a while a claim compares the number of records with the sizes of the sets. If there are more
-- records, claims walk through them, some at a time, and have the tasks of unindexed records wait.

local reindex

do
local WALKED = 200 -- how many records one step of the walk reads
local HEADOFLINE = 1000 -- how many entries at the head of the line it reads

-- unindexed returns how many more records a queue has than members of its sets, leases and entries of its
-- line. Steps keep it at 0.
local function unindexed(q)
  local n = call('HLEN', q[TASKS]) - max(call('HLEN', q[PENDING]) - 1, 0) - lined(q)
  for st, key in pairs(SETS) do
    if st ~= 'p' then n = n - call('ZCARD', q[key]) end
  end
  return n
end

-- inline returns a function that reports whether a task that is in no set stands in the line. It reads the
-- head of the line. Behind the head stand only tasks that joined later: the mark of the step with which a
-- task joined is at least the moment in its record, and at most its version or that moment.
local function inline(q)
  local first, length = firstof(q)
  local inhead, last = {}, false
  for _, id in ipairs(entries(q, first, 0, HEADOFLINE)) do
    if id then inhead[id], last = true, id end
  end
  local after = last and joined(call('HGET', q[TASKS], last)) or 0
  return function(id, h)
    if inhead[id] then return true end
    if ring.waiting(h) then return false end
    if length <= HEADOFLINE or h.priority ~= 0 or waits(h) == 'z' then return false end
    return max(h.version, joined(h.rec) or 0) >= after
  end
end

-- restore has the task of an unindexed record wait before all others of its priority, and a cursor tick. A
-- record with the place of a scheduled, retried, declined or ended task does not show in which of these
-- states the task was. restore sets it apart, and leaves its fields in the side hash.
local function restore(q, e, h)
  set(q, 'reindexed', now)
  if not e.st then return move(q, e, 'u', now) end
  e.popped = true -- its entry is gone
  if (joined(e.rec) or ring.waiting(h)) and valid(e.id) then
    h.side = true
    return rejoin(q, e, h, 'head')
  end
  setapart(q, e, {life = h.life, key = h.key})
end

-- walk takes a step of the walk through the records, and returns where the next one begins, false if this was
-- the last.
local function walk(q, from)
  local v, stands, lost = call('HSCAN', q[TASKS], from, 'count', WALKED), inline(q), {}
  for i = 1, #v[2], 2 do
    local id, h = v[2][i], head(v[2][i + 1])
    if h and not q.e[id] then -- else the record is damaged, or this step has the task already
      local e = entry(q, id)
      e.rec = h.rec
      load(q, id)
      if not e.st or e.st == 'l' and not stands(id, h) then lost[#lost + 1] = {e, h, joined(h.rec) or 0} end
    end
  end
  table.sort(lost, function(x, y) return x[3] > y[3] end)
  for i = 1, #lost do restore(q, lost[i][1], lost[i][2]) end
  return v[1] ~= '0' and v[1]
end

local walked = false -- whether this call has walked in one of its queues

-- reindex searches for unindexed records once in a while, and walks if there are any. It reports whether
-- the walk goes on.
function reindex(q)
  local at, from = q.m.reindex, aside(q, 't:')
  if q.m.mark == 0 or at > now and at <= now + 10 * REINDEXEVERY then return end
  if unindexed(q) <= 0 then
    if from then put(q, 't:', false) end
    return set(q, 'reindex', now + REINDEXEVERY)
  end
  if not walked then
    walked, from = true, walk(q, text(sane(from) or 0))
    put(q, 't:', from)
    if not from then return set(q, 'reindex', now + 10 * REINDEXEVERY) end
  end
  return true
end
end

