-- entry: tasks and what hangs on them, as one call sees them.

-- Where tasks stand by a moment, what stands for each is a place, a number that grows, and its
-- id: of those with the same moment that came first which a step put there first. The record
-- has the place behind its header. A promotion replaces it: see joined in stats.lua.
local PLACED = {s = true, r = true, c = true, x = true, d = true}

-- Entries: one task as this call sees it. st is its state and score its place
-- there, was the state in which it was found; false is none, nil not looked up.

local function entry(q, id)
  local e = q.e[id]
  if not e then
    e = {id = id}
    q.e[id] = e
    if q.done and q.done[id] then -- its removal is planned
      e.st, e.was, e.rec, e.lease = false, false, false, false
    elseif q.new and q.new[id] then -- its insert is
      e.st = byte(q.new[id], 18) == MAXPRIORITY and 'l' or 'w'
      e.was, e.rec, e.lease = e.st, q.new[id], false
    end
  end
  return e
end

-- found notes where a task was found, and as what where that is not its id.
local function found(e, st, member)
  e.st, e.was, e.member = st, st, member
  return e
end

-- memberof gives what stands for a task in the set of a state.
local function memberof(st, id, rec)
  if not PLACED[st] or not has(byte(rec, 3) or 0, HASPLACE) then return id end
  return sub(rec, HEADER + 1, HEADER + PLACE) .. id
end

-- A declined task stands in the set of them, whose scores are all 0, by the name of its kind, NUL, its
-- priority in a byte, the highest first, and its place, behind which are the moment of its decline and
-- its id. Suspects stand behind the others of their kind: their byte is DOUBTFUL more.
local DOUBTFUL = 64

-- lineof gives what leads the members of a kind and priority.
local function lineof(kind, priority, suspect)
  return kind .. '\0' .. char(MAXPRIORITY - priority + (suspect and DOUBTFUL or 0))
end

-- span gives the first and the last place of a kind, of suspects or of the others.
local function span(kind, suspect)
  local middle = kind .. '\0' .. char(DOUBTFUL)
  if suspect then return '[' .. middle, '(' .. kind .. '\1' end
  return '[' .. kind .. '\0', '(' .. middle
end

-- kindof gives the kind of a task.
local function kindof(h) return sub(h.rec, h.kindat, h.kindat + h.kind - 1) end

-- declinedas gives what stands for a declined task, nil where it is none.
local function declinedas(q, id, rec)
  local h = has(byte(rec, 3) or 0, HASPLACE) and head(rec)
  if not h then return nil end
  local lead = lineof(kindof(h), h.priority, waits(h) == 'z') .. h.place
  local v = call('ZRANGEBYLEX', q[DECLINED], '[' .. lead, '[' .. lead .. '\255', 'LIMIT', 0, 1)
  return v[1] and sub(v[1], #lead + PLACE + 1) == id and v[1] or nil
end

-- idof gives the id of a member of a set of tasks that have places.
local function idof(member) return sub(member, PLACE + 1) end

-- leased notes the lease under which a task was found, false for none.
local function leased(e, value)
  e.lease = value
  if not value then return end
  if has(byte(value, FENCE + 1) or 0, GROUPED) then e.group = sub(value, 1, FENCE) end
  found(e, 'p')
end

-- ranked puts a rank into a lease of no group.
local function ranked(value, rank) return sub(value, 1, FENCE + 1) .. pack2(rank) .. sub(value, FENCE + 2) end

-- runnerof gives the runner of a lease.
local function runnerof(value)
  return sub(value, has(byte(value, FENCE + 1) or 0, GROUPED) and FENCE + 2 or FENCE + 4)
end

-- bare reports whether nothing hangs on a lease with these flags.
local function bare(flags) return flags % GROUPED <= STARTED end

-- expiry gives when the lease of a pending task expires.
local function expiry(q, id, value)
  local grouped = has(byte(value, FENCE + 1) or 0, GROUPED)
  return call('ZSCORE', q[SETS.p], grouped and ALARM .. sub(value, 1, FENCE) or id)
end

-- members gives those of a group that are still in it: ids, leases and ranks, in the order of
-- their claim; and how many it had. A lease too short to tell its fence counts: with its group
-- it ends.
local function members(q, fence)
  local ids, leases, ranks, all = {}, {}, {}, {}
  for id in string.gmatch(call('HGET', q[CLAIMS], fence) or '', '[^,]+') do all[#all + 1] = id end
  if #all == 0 then return ids, leases, ranks, 0 end
  local values = lookup(q[PENDING], all)
  for i, id in ipairs(all) do
    local v = values[i]
    if v and (#v <= FENCE or sub(v, 1, FENCE) == fence and has(byte(v, FENCE + 1), GROUPED)) then
      ids[#ids + 1], leases[#leases + 1], ranks[#ranks + 1] = id, v, i - 1
    end
  end
  return ids, leases, ranks, #all
end

-- load finds out where a task stands: in the line, where it does nowhere else. A cursor
-- that stands nowhere does not count, nor does any other record where there is no line.
local function load(q, id)
  local e = entry(q, id)
  if e.rec == nil then e.rec = call('HGET', q[TASKS], id) end
  if e.st ~= nil then return e end
  if e.lease == nil then leased(e, call('HGET', q[PENDING], id)) end
  if e.lease then return found(e, 'p') end
  if e.rec then
    if sub(id, 1, 7) == 'cursor.' then
      if call('ZSCORE', q[SETS.u], id) then return found(e, 'u') end
      return found(e, false)
    end
    for _, st in ipairs(SEARCH) do
      local member = memberof(st, id, e.rec)
      if call('ZSCORE', q[SETS[st]], member) then return found(e, st, member) end
    end
    local declined = declinedas(q, id, e.rec)
    if declined then return found(e, 'k', declined) end
    if call('EXISTS', q[LINE]) == 1 then return found(e, 'l') end
  end
  return found(e, false)
end

-- taken reports whether an insert may not have the id of an entry that was loaded: its task
-- stands somewhere, or may do so, for a damaged record does not say in which place.
local function taken(e) return e.st or e.rec and not head(e.rec) end

-- record gives the header of an entry's record, nil where it is damaged or gone.
local function record(q, e)
  if e.rec == nil then e.rec = call('HGET', q[TASKS], e.id) end
  return head(e.rec)
end

local function touch(q, e)
  if not e.touched then
    e.touched = true
    q.touched[#q.touched + 1] = e
  end
end

-- move puts a task into a state at a score; false is nowhere. joins is what stands for it
-- there, where that is not its id.
local function move(q, e, st, score, joins)
  touch(q, e)
  e.st, e.score, e.joins = st, score, joins
end

-- append puts a task that waits behind all others of its priority.
local function append(q, e, st, priority)
  if st == 'w' and priority == 0 then st = 'l' end
  move(q, e, st, tail(q, st, priority))
end

-- kindin gives the kind in what stands for a declined task.
local function kindin(member) return string.match(member, '^[^%z]*') end

-- suspectin reports whether what stands for a declined task is a suspect's.
local function suspectin(member) return (byte(member, #kindin(member) + 2) or 0) >= DOUBTFUL end

-- countkind notes that tasks joined the line of a kind, or left it.
local function countkind(q, kind, suspect, by)
  local counts = q.kinds[kind] or {[true] = 0, [false] = 0}
  q.kinds[kind], counts[suspect] = counts, counts[suspect] + by
end

-- tally gives how many tasks are in the line of a kind by what the side hash has of it, the suspects
-- apart: nil and 0 where it does not tell.
local function tally(v)
  v = v and sub(v, PLACE + 1) or ''
  local n = tonumber(v)
  if n then return n, 0 end -- as most are
  local others, suspects = string.match(v, '^(%d+)%+(%d+)$')
  return tonumber(others or ''), tonumber(suspects or '') or 0
end

-- tallied is what the side hash has of a line.
local function tallied(named, n, suspects) return named .. n .. (suspects > 0 and '+' .. suspects or '') end

local function rewrite(q, e, h)
  touch(q, e)
  e.rec, e.written = compose(h), true
end

-- stand puts a task into a state by its score, behind all others of that score, and writes its
-- record.
local function stand(q, e, h, st, score)
  h.place = nil
  if PLACED[st] then
    bump(q, 'turn', 1)
    h.place = pack7(q.m.turn)
  end
  rewrite(q, e, h)
  move(q, e, st, score, h.place and h.place .. e.id)
end

-- decline puts a task into the line of its kind.
local function decline(q, e, h)
  bump(q, 'turn', 1)
  h.place = pack7(q.m.turn)
  rewrite(q, e, h)
  move(q, e, 'k', 0, lineof(kindof(h), h.priority, waits(h) == 'z') .. h.place .. pack7(now) .. e.id)
end

local function lease(q, e, value)
  touch(q, e)
  e.lease, e.leased = value, true
end

-- version of an entry that stands somewhere, nil where its record is damaged.
local function version(e)
  if e.st == 'p' then return number(e.lease, 17, 7) end
  local h = head(e.rec)
  return h and h.version
end

-- What hangs on a task.

local function aside(q, field)
  local v = q.side[field]
  if v == nil then
    v = call('HGET', q[SIDE], field)
    q.side[field] = v
  end
  return v
end

local function put(q, field, v)
  q.side[field] = v
  q.sided = q.sided or {}
  q.sided[field] = true
end

local function strip(q, id)
  for i = 1, #KINDS do put(q, KINDS[i] .. id, false) end
end

-- Unique keys: L and the holder's id, or W, the end of the window and the id. windows
-- has what becomes of a key's end: a moment, or false where it goes.

local function holder(q, key)
  local v = q.unique[key]
  if v == nil then
    v = call('HGET', q[UNIQUE], key)
    q.unique[key] = v
  end
  if not v then return nil end
  if byte(v, 1) == 76 then return sub(v, 2) end
  if number(v, 2, 7) <= now then return nil end
  return sub(v, 9)
end

local function own(q, key, v, untl)
  q.owned = q.owned or {}
  q.unique[key], q.owned[key] = v, true
  if untl ~= nil then q.windows[key] = untl end
end

local function takekey(q, h, id)
  if h.life then
    local last = q.unique[h.key]
    if last and byte(last, 1) == 87 then q.windows[h.key] = false end -- a window that is over
    own(q, h.key, 'L' .. id)
  end
  if h.window then own(q, h.key, 'W' .. pack7(now + h.keyfor) .. id, now + h.keyfor) end
end

local function freekey(q, h, id)
  if h.life and holder(q, h.key) == id then own(q, h.key, false) end
end

-- Ends of tasks.

-- unlease ends a lease; what it knew of the side hash goes into the record.
local function unlease(q, e, h)
  local flags = byte(e.lease, FENCE + 1) or 0
  if has(flags, ASKED) then bump(q, 'cancels', -1) end
  if h and has(flags, ASIDE) then h.side = true end
  e.lease = false
end

local function gone(q, e, h)
  if not h or h.side or h.large then strip(q, e.id) end
  move(q, e, false)
  e.rec, e.lease = false, false
end

-- ended keeps a task that completed or was cancelled for as long as asked.
local function ended(q, e, h, st, keep)
  freekey(q, h, e.id)
  if keep <= 0 then return gone(q, e, h) end
  h.version = mark
  stand(q, e, h, st, now + keep)
end

-- The history of a task: its reason, then its attempts, each behind its length.

-- log appends an attempt.
local function log(q, e, h, outcome, message)
  local before = aside(q, 'h:' .. e.id) or char(0)
  local first = 2 + (byte(before, 1) or 0)
  local i, n = first, 0
  local second
  while i <= #before do
    i = i + 2 + number(before, i, 2)
    n = n + 1
    if n == 1 then second = i end
  end
  if n >= MAXATTEMPTS then before = sub(before, 1, first - 1) .. sub(before, second) end
  local runner = ''
  local claimed = pack7(0)
  if e.lease then
    runner = runnerof(e.lease)
    claimed = sub(e.lease, 17, 23)
  end
  local item = pack7(now) .. claimed .. outcome .. char(#runner) .. runner .. message
  put(q, 'h:' .. e.id, before .. pack2(#item) .. item)
  h.side = true
end

-- attempt appends the attempt that ends here, and keeps its stack.
local function attempt(q, e, h, outcome, message, stack)
  log(q, e, h, outcome, message)
  put(q, 's:' .. e.id, stack ~= '' and stack or false)
end

-- why gives a task its reason, '' for none.
local function why(q, e, h, reason)
  if reason == '' and not h.side then return end
  local before = aside(q, 'h:' .. e.id) or char(0)
  local after = char(#reason) .. reason .. sub(before, 2 + (byte(before, 1) or 0))
  if after == before then return end
  put(q, 'h:' .. e.id, #after > 1 and after or false)
  h.side = true
end

-- die buries a task for a reason.
local function die(q, e, h, reason)
  why(q, e, h, reason)
  h.version = mark
  freekey(q, h, e.id)
  stand(q, e, h, 'd', now)
  bump(q, 'dead', 1)
  q.deaths = q.deaths + 1
end

-- setapart puts a damaged record where it stops nobody. What stands in the set of a state and
-- has no record is kept by its own name: it may have been that of a task, which nobody finds now.
-- A record of a later version stays where it is: q.later says that there is something left to do
-- for those who know it.
local function setapart(q, e)
  if later(e.rec) then
    q.later = true
    return
  end
  q.apart[#q.apart + 1] = e.rec and e.id or e.member or e.id
  q.apart[#q.apart + 1] = e.rec or ''
  if LIVE[e.st] then bump(q, 'deleted', 1) end
  if e.st == 'p' and e.lease then unlease(q, e) end
  gone(q, e)
end

-- drop removes tasks that ended long ago, all at once. It sets apart those whose records are
-- damaged.
local function drop(q, st, members)
  if #members == 0 then return end
  local ids = {}
  for i = 1, #members do ids[i] = idof(members[i]) end
  local recs = lookup(q[TASKS], ids)
  for i = 1, #members do
    local e = entry(q, ids[i])
    if e.st == nil or e.st == st then
      found(e, st, members[i])
      if e.rec == nil then e.rec = recs[i] end
      local h = head(e.rec)
      if h then gone(q, e, h) else setapart(q, e) end
    end
  end
end

