-- maintain: what claim.lua does first in queues in which something may be due: it recovers,
-- promotes, ticks and trims, in bounded batches. That is a step of its own.

local BATCH = 100 -- how much maintenance one call does, in all of its queues
local MOSTLOOKED = 2000 -- how many members of groups it looks at

local left = BATCH -- of the maintenance
local share = 0 -- the part of it for one kind in one queue
local more = false -- some is left over

-- spend notes that n of a share were found, in a list that has been limited to it.
local function spend(n)
  left = left - n
  if n >= share then more = true end
end

-- first gives the score of the first member of a set, nil where it is empty.
local function first(key)
  local v = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return v[1] and tonumber(v[2])
end

-- upto gives a share of the members whose score is not after a moment, the earliest first, and
-- their scores.
local function upto(key, moment)
  local v = call('ZRANGEBYSCORE', key, '-inf', text(moment), 'WITHSCORES', 'LIMIT', 0, share)
  local members, scores = {}, {}
  for i = 1, #v, 2 do
    members[#members + 1], scores[#scores + 1] = v[i], tonumber(v[i + 1])
  end
  spend(#members)
  return members, scores
end

-- since puts into a record that has a place when its task came to wait: see joined in stats.lua.
local function since(rec) return sub(rec, 1, HEADER) .. pack7(now) .. sub(rec, HEADER + PLACE + 1) end

-- promote moves what is due to waiting, the earliest first.
local function promote(q)
  local due, ids = {}, {}
  for _, st in ipairs({'s', 'r'}) do
    local members, scores = upto(q[SETS[st]], now)
    for i, member in ipairs(members) do due[#due + 1] = {scores[i], number(member, 1, PLACE), member, st} end
  end
  if #due == 0 then return end
  table.sort(due, function(x, y) return x[1] < y[1] or x[1] == y[1] and x[2] < y[2] end)
  for n = 1, #due do ids[n] = idof(due[n][3]) end
  local recs = lookup(q[TASKS], ids)
  for n, id in ipairs(ids) do
    local e = found(entry(q, id), due[n][4], due[n][3])
    e.rec = recs[n]
    local h = head(e.rec)
    if h then
      e.rec, e.written = since(e.rec), true
      append(q, e, waits(h), h.priority)
    else
      setapart(q, e)
    end
  end
end

-- overdue gives tasks of the leases that expired, the last first: ids, leases, and ranks of
-- those in groups. What a group leaves over is for the next call.
local function overdue(q)
  local found = call('ZREVRANGEBYSCORE', q[SETS.p], text(now), '-inf', 'WITHSCORES', 'LIMIT', 0, share)
  local ids, leases, ranks, looked = {}, {}, {}, 0
  for i = 1, #found, 2 do
    if #ids >= share or looked > MOSTLOOKED then break end
    local member = found[i]
    if sub(member, 1, 1) == ALARM then
      local group = sub(member, 2)
      local names, values, places, had = members(q, group)
      looked = looked + had
      if #names == 0 then leave(q, group, NEVER) end
      for j = #names, max(#names - (share - #ids) + 1, 1), -1 do
        local n = #ids + 1
        ids[n], leases[n], ranks[n] = names[j], values[j], places[j]
      end
    else
      local n = #ids + 1
      ids[n], leases[n] = member, call('HGET', q[PENDING], member)
    end
  end
  spend(#ids)
  more = more or looked > MOSTLOOKED
  return ids, leases, ranks
end

-- expired gives leases that expired, as entries, the last claimed first: each will go to the
-- head, so that the first claimed is the first to be claimed again.
local function expired(q)
  local names, leases, ranks = overdue(q)
  if #names == 0 then return {} end
  local list, recs = {}, lookup(q[TASKS], names)
  for n, id in ipairs(names) do
    local e = found(entry(q, id), 'p')
    leased(e, leases[n])
    e.rec = recs[n]
    e.h = head(e.rec)
    e.claim = e.lease and number(e.lease, FENCE - 6, 7) or 0
    e.rank = ranks[n] or e.lease and number(e.lease, FENCE + 2, 2) or 0
    list[n] = e
  end
  table.sort(list, function(x, y)
    if x.claim ~= y.claim then return x.claim > y.claim end
    return x.rank > y.rank
  end)
  return list
end

-- valid reports whether an id is one that callers can name: storage.CheckName. What no
-- insert could have written is damaged.
local function valid(id) return #id <= 128 and find(id, '^%w[%w_.-]*$') end

-- tell notes a task that ends, for the answer: the letter of its state, k where it is dead of an unknown
-- kind, its id behind its length, and its kind likewise.
local function tell(q, e, h, st)
  local kind = kindof(h)
  q.ended[#q.ended + 1] = st .. char(#e.id) .. e.id .. char(#kind) .. kind
end

-- recover ends leases that expired.
local function recover(q)
  q.ended = {}
  for _, e in ipairs(expired(q)) do
    local h = e.h
    if not h or not valid(e.id) then setapart(q, e) else
      local flags = e.lease and byte(e.lease, FENCE + 1) or 0
      local started, asked = has(flags, STARTED), has(flags, ASKED)
      attempt(q, e, h, started and 'k' or 'e', '', '')
      why(q, e, h, '') -- of a snooze before
      if e.lease then unlease(q, e, h) end
      if started then
        h.crashes = h.crashes + 1
        bump(q, 'crashed', 1)
      else
        h.noahead = true
      end
      if asked then
        tell(q, e, h, 'x')
        bump(q, 'cancelled', 1)
        ended(q, e, h, 'x', h.keep)
      elseif started and h.crashes >= h.crashlimit then
        tell(q, e, h, 'd')
        die(q, e, h, REASONCRASHES)
      else
        h.version = mark
        stand(q, e, h, waits(h), front(q, h.priority))
      end
    end
  end
end

local LINES = 20 -- how many lines of kinds one step looks at

-- unknown gives up to so many tasks of a kind that have waited in its line for too long: what stands
-- for each. In each priority they come first.
local function unknown(q, kind, most)
  local members = {}
  for priority = MAXPRIORITY, -MAXPRIORITY, -1 do
    local lead = lineof(kind, priority)
    local v = call('ZRANGEBYLEX', q[DECLINED], '[' .. lead, '[' .. lead .. '\255', 'LIMIT', 0, most - #members)
    for i = 1, #v do
      if number(v[i], #lead + PLACE + 1, PLACE) + DECLINEDFOR > now then break end
      members[#members + 1] = v[i]
    end
  end
  return members
end

-- namedat gives when a claim last named a kind. Where the side hash does not tell, or not how many tasks
-- are in the line, they are counted anew, and the kind counts as named now.
local function namedat(q, kind)
  local v = aside(q, 'k:' .. kind)
  if v and tonumber(sub(v, PLACE + 1)) then return number(v, 1, PLACE) end
  local n = call('ZLEXCOUNT', q[DECLINED], '[' .. kind .. '\0', '[' .. kind .. '\0\255')
  put(q, 'k:' .. kind, pack7(now) .. n)
  return now
end

-- forsake ends declined tasks that waited too long while no claim named their kind. It goes on with the
-- lines behind those at which the last step looked, of which the side hash has the last.
local function forsake(q)
  if q.m.looks == 0 or q.m.looks > now or q.m.paused < 0 or q.m.paused > now then return end
  local behind, ends = aside(q, 'k:') or nil, 0
  local kinds, none, again = kindsof(q[DECLINED], behind, LINES), not behind, now + floor(DECLINEDFOR / 24)
  for _, kind in ipairs(kinds) do
    local over = namedat(q, kind) + DECLINEDFOR
    if over > now then again = min(again, over) end
    local members = over > now and {} or unknown(q, kind, share - ends)
    for _, member in ipairs(members) do
      local id = sub(member, #lineof(kind, 0) + 2 * PLACE + 1)
      local e = found(entry(q, id), 'k', member)
      e.rec = call('HGET', q[TASKS], id)
      local h = head(e.rec)
      if h then
        tell(q, e, h, 'k')
        die(q, e, h, REASONKIND)
      else
        setapart(q, e)
      end
    end
    ends = ends + #members
    if ends >= share then break end
    behind = kind
  end
  spend(ends)
  local over = #kinds == 0 or #kinds < LINES and behind == kinds[#kinds]
  put(q, 'k:', not over and behind or false)
  if over then set(q, 'looks', #kinds == 0 and none and 0 or again) end
end

-- trim removes what was kept long enough.
local function trim(q)
  for _, st in ipairs({'c', 'x', 'd'}) do
    local old = upto(q[SETS[st]], st == 'd' and now - DEADFOR or now)
    drop(q, st, old)
  end
  local excess = min(call('ZCARD', q[SETS.d]) - DEADMAX, share)
  if excess > 0 then
    spend(excess)
    drop(q, 'd', call('ZRANGE', q[SETS.d], 0, excess - 1))
  end
  for _, key in ipairs((upto(q[WINDOWS], now))) do own(q, key, false, false) end
end

-- tick hands out the cursors that are due and hides them.
local function tick(q)
  q.ticks = {}
  local due = upto(q[SETS.u], now)
  local recs = lookup(q[TASKS], due)
  for n, id in ipairs(due) do
    local e = found(entry(q, id), 'u')
    e.rec = recs[n]
    local h = valid(id) and head(e.rec)
    if h then
      move(q, e, 'u', now + TICKHIDE)
      q.ticks[#q.ticks + 1] = id
      q.ticks[#q.ticks + 1] = h.large and e.rec .. (aside(q, 'b:' .. id) or '') or e.rec
    else
      setapart(q, e)
    end
  end
end

-- look finds out when something is due next in a queue that was maintained.
local function look(q, unfinished)
  if q.m.mark == 0 then return end -- no queue yet
  local soon, due = q.m.touched > 0 and q.m.touched + QUEUELIFE or NEVER - 1, 0
  local from = unfinished and '(' .. text(now) or '-inf' -- the clock has moved on since the maintenance
  for _, st in ipairs({'s', 'r', 'u'}) do
    local v = call('ZRANGEBYSCORE', q[SETS[st]], from, NEVER - 1, 'WITHSCORES', 'LIMIT', 0, 1)
    if v[1] and (due == 0 or tonumber(v[2]) < due) then due = tonumber(v[2]) end
  end
  if due > 0 then soon = min(soon, due) end
  if q.m.looks == 0 and call('ZCARD', q[DECLINED]) > 0 then set(q, 'looks', now) end -- it is damaged
  if q.m.looks > 0 then soon = min(soon, max(q.m.looks, now + PUTOFF)) end
  for _, key in ipairs({LEASES, COMPLETED, CANCELLED, DEAD, WINDOWS}) do
    local at = first(q[key])
    if at and key == DEAD then at = at + DEADFOR end
    if at then soon = min(soon, max(at, now + PUTOFF)) end
  end
  if unfinished or call('ZCARD', q[DEAD]) > DEADMAX or q.m.paused ~= 0 or q.m.jumped > 0 then soon = 0 end
  set(q, 'due', due)
  set(q, 'soon', soon)
end

-- abandoned reports whether a queue was empty, without settings and untouched for a
-- day.
local function abandoned(q)
  if q.m.touched == 0 or now - q.m.touched < QUEUELIFE or q.m.paused ~= 0 or q.m.jumped > 0 then return false end
  if #q.plan > 0 or #q.touched > 0 then return false end
  for _, key in pairs(SETS) do
    if call('ZCARD', q[key]) > 0 then return false end
  end
  return vacant(q) and call('ZCARD', q[WINDOWS]) == 0 and call('HLEN', q[DAMAGED]) == 0
end

