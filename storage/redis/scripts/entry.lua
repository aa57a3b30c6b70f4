-- entry: tasks and their data in the side hash, as one call sees them.

-- entry returns the entry of a task: the task as this call sees it, its changes included. st is its
-- state and score its score there; was is the state in which it was found. false means that it is in no
-- state, nil that it has not been loaded yet.
local function entry(q, id)
  local e = q.e[id]
  if not e then
    -- The fields stand here so that Lua makes room for all of them at once.
    e = {id = id, st = nil, was = nil, rec = nil, lease = nil, member = nil, touched = nil, score = nil, written = nil}
    q.e[id] = e
    if q.done and q.done[id] then -- its removal is planned
      e.st, e.was, e.rec, e.lease = false, false, false, false
    elseif q.new and q.new[id] then -- its insert is planned
      e.st = byte(q.new[id], 18) == MAXPRIORITY and 'l' or 'w'
      e.was, e.rec, e.lease = e.st, q.new[id], false
    end
  end
  return e
end

-- found notes the state in which a task was found, and its member there if that is not its id.
local function found(e, st, member)
  e.st, e.was, e.member = st, st, member
  return e
end

-- idof returns the id in a member of the set of a state in PLACED.
local function idof(member) return sub(member, PLACE + 1) end

-- leased notes the lease of a task, false for none.
local function leased(e, value)
  e.lease = value
  if not value then return end
  if has(byte(value, FENCE + 1) or 0, GROUPED) then e.group = sub(value, 1, FENCE) end
  found(e, 'p')
end

-- runnerof returns the runner of a lease, and the text that a claim may have put behind its name: see
-- record.go.
local function runnerof(value)
  local flags, behind = byte(value, FENCE + 1) or 0, 0
  if has(flags, COUNTED) then behind = select(2, ring.counted(value)) end
  return sub(value, has(flags, GROUPED) and FENCE + 2 or FENCE + 4, -1 - behind)
end

-- expiry returns when the lease of a pending task expires.
local function expiry(q, id, value)
  local grouped = has(byte(value, FENCE + 1) or 0, GROUPED)
  return call('ZSCORE', q[SETS.p], grouped and ALARM .. sub(value, 1, FENCE) or id)
end

-- members returns the tasks that are still in a group: ids, leases and ranks, in the order of their
-- claim. It also returns how many tasks the group had at first. A lease too short to have a fence counts
-- as one of the group, so that it ends with the group.
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

local load

do
local SEARCH = SEARCHED -- the states whose sets are searched for a task with no lease

-- memberof returns the member of a task in the set of a state.
local function memberof(st, id, rec)
  if not PLACED[st] or not has(byte(rec, 3) or 0, HASPLACE) then return id end
  return sub(rec, HEADER + 1, HEADER + PLACE) .. id
end

-- load finds out the state of a task, and returns its entry. A task with a record that is in none of the
-- sets is in the line, or a torn append-only file has cost it its place (reindex.lua). A cursor
-- that is in no set does not exist.
function load(q, id)
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
    local declined = byname.find(q, id, e.rec)
    if declined then return found(e, 'k', declined) end
    local h = has(byte(e.rec, 3) or 0, INPARTITION) and head(e.rec)
    if h and ring.waiting(h) then e.popped = true end -- it has lost its place, and has no entry in the line
    return found(e, 'l')
  end
  return found(e, false)
end

end

local function touch(q, e)
  if not e.touched then
    e.touched = true
    q.touched[#q.touched + 1] = e
  end
end

-- move puts a task into a state at a score; the state false removes it. joins is its member there,
-- if that is not its id.
local function move(q, e, st, score, joins)
  touch(q, e)
  if e.st == 'k' or st == 'k' then ring.moved(q, e.st == 'k' and (e.joins or e.member), st == 'k' and joins) end
  e.st, e.score, e.joins = st, score, joins
end

local function rewrite(q, e, h)
  touch(q, e)
  e.rec, e.written = compose(h), true
end

-- stand puts a task that does not wait into a state at a score, behind all others of that score, and writes
-- its record.
local function stand(q, e, h, st, score)
  h.place = nil
  if PLACED[st] then
    bump(q, 'turn', 1)
    h.place = pack7(q.m.turn)
  end
  if st == 'd' then q.deaths = q.deaths + 1 end
  rewrite(q, e, h)
  move(q, e, st, score, h.place and h.place .. e.id)
end

-- rejoin has a task wait again, and writes its record: at the tail or the head of its priority, in the line of its
-- partition if it has one, or at the end of the line of its kind.
local function rejoin(q, e, h, at)
  local st, score, member = waits(h), 0, nil
  h.version, h.place = mark, nil
  if at == 'kind' then
    bump(q, 'turn', 1)
    h.place = pack7(q.m.turn)
    member = byname.prefix(byname.of(h), h.priority, st == 'z') .. h.place .. pack7(now) .. e.id
    st = 'k'
  elseif h.partition ~= '' then
    st, member = 'k', ring.place(q, h, e.id, at == 'head')
  else
    if at == 'tail' then h.place = pack7(now) end -- see joined in record.lua
    st, score = spot(q, st, h.priority, at == 'head')
  end
  rewrite(q, e, h)
  move(q, e, st, score, member)
end

local function lease(q, e, value)
  touch(q, e)
  e.lease, e.leased = value, true
end

-- The side hash.

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

-- Unique keys. The value of a key is L and the holder's id, or W, the end of the window and the id.
-- q.windows has the change to the end of a key's window: a moment, or false if the end is removed.

local unique = {}

function unique.holder(q, key)
  local v = q.unique[key]
  if v == nil then
    v = call('HGET', q[UNIQUE], key)
    -- The task of a key for life has a record, unless the record was damaged and is set apart.
    if v and byte(v, 1) == 76 and not call('HGET', q[TASKS], sub(v, 2)) then v = false end
    q.unique[key] = v
  end
  if not v then return nil end
  if byte(v, 1) == 76 then return sub(v, 2) end
  if number(v, 2, 7) <= now then return nil end
  return sub(v, 9)
end

function unique.own(q, key, v, untl)
  q.owned = q.owned or {}
  q.unique[key], q.owned[key] = v, true
  if untl ~= nil then q.windows[key] = untl end
end

function unique.take(q, h, id)
  if h.life then
    local last = q.unique[h.key]
    if last and byte(last, 1) == 87 then q.windows[h.key] = false end -- the window is over
    unique.own(q, h.key, 'L' .. id)
  end
  if h.window then unique.own(q, h.key, 'W' .. pack7(now + h.keyfor) .. id, now + h.keyfor) end
end

function unique.free(q, h, id)
  if h.life and unique.holder(q, h.key) == id then unique.own(q, h.key, false) end
end

-- Ends of tasks.

-- unlease ends a lease, as all ends of leases do but a run of plain completions (apply.lua). The record takes over its flag that the side hash has something of the task.
local function unlease(q, e, h)
  local flags = byte(e.lease, FENCE + 1) or 0
  if has(flags, ASKED) and q.m.cancels > 0 then bump(q, 'cancels', -1) end
  if has(flags, COUNTED) then ring.free(q, e.lease) end
  if h and has(flags, ASIDE) then h.side = true end
  e.lease = false
end

local function gone(q, e, h)
  if not h or h.side or h.large then strip(q, e.id) end
  move(q, e, false)
  e.rec, e.lease = false, false
end

local finish

do
-- ENDS are the totals that count ends, by the state in which an end leaves the task; false removes it.
local ENDS = {c = 'completed', x = 'cancelled', d = 'dead', [false] = 'deleted'}

-- finish ends a live task: every end passes here, except a run of plain completions (apply.lua). It keeps the
-- task in the state st for the time keep, without a time if that is nil, and removes it if keep is 0. h is
-- nil if the record is damaged.
function finish(q, e, h, st, keep)
  bump(q, ENDS[st], 1)
  if h then unique.free(q, h, e.id) end
  if keep and keep <= 0 then return gone(q, e, h) end
  h.version = mark
  stand(q, e, h, st, now + (keep or 0))
end

end

-- remove removes a task, which is the end of a live one.
local function remove(q, e, h)
  if LIVE[e.st] then finish(q, e, h, false, 0) else gone(q, e, h) end
end

-- The history of a task is its reason behind a length byte, then its attempts, each behind its length in
-- 2 bytes.

local history = {}

-- attempted packs an attempt that ends now, or a requeue.
function history.attempted(e, outcome, message)
  local runner, claimed = '', pack7(0)
  if e.lease then runner, claimed = runnerof(e.lease), sub(e.lease, 17, 23) end
  return pack7(now) .. claimed .. outcome .. char(#runner) .. runner .. message
end

-- log appends an attempt. The oldest one goes if there are MAXATTEMPTS already.
function history.log(q, e, h, item)
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
  put(q, 'h:' .. e.id, before .. pack2(#item) .. item)
  h.side = true
end

-- attempt appends the attempt that ends now, and keeps its stack.
function history.attempt(q, e, h, outcome, message, stack)
  history.log(q, e, h, history.attempted(e, outcome, message))
  put(q, 's:' .. e.id, stack ~= '' and stack or false)
end

-- why sets the reason of a task, '' for none.
function history.why(q, e, h, reason)
  if reason == '' and not h.side then return end
  local before = aside(q, 'h:' .. e.id) or char(0)
  local after = char(#reason) .. reason .. sub(before, 2 + (byte(before, 1) or 0))
  if after == before then return end
  put(q, 'h:' .. e.id, #after > 1 and after or false)
  h.side = true
end

-- die buries a task for a reason.
local function die(q, e, h, reason)
  history.why(q, e, h, reason)
  finish(q, e, h, 'd')
end

-- setapart moves a damaged record to the hash damaged, so that no step meets it again. A member of a set
-- that has no record is kept there under its own name, because the task that it stood for cannot be
-- found. A record of a later version stays where it is, and q.later counts the records that are left for
-- processes that know it. h is nil if the side hash keeps nothing of the task.
local function setapart(q, e, h)
  if later(e.rec) then
    q.later = (q.later or 0) + 1
    return
  end
  q.apart[#q.apart + 1] = e.rec and e.id or e.member or e.id
  q.apart[#q.apart + 1] = e.rec or ''
  if e.st == 'p' and e.lease then unlease(q, e) end
  remove(q, e, h)
end

-- drop removes tasks of an ended state, and sets apart those with damaged records, and members whose place is not that
-- of their record: a torn append-only file has left these behind, and the task is elsewhere. It reads all of the
-- records with one command. It returns how many tasks it removed.
local function drop(q, st, members)
  if #members == 0 then return 0 end
  local ids, n = {}, 0
  for i = 1, #members do ids[i] = idof(members[i]) end
  local recs = lookup(q[TASKS], ids)
  for i = 1, #members do
    local e = entry(q, ids[i])
    local h = head(e.rec or e.rec == nil and recs[i])
    if e.st == nil and h and h.place ~= sub(members[i], 1, PLACE) then
      q.apart[#q.apart + 1], q.apart[#q.apart + 2] = members[i], ''
      q.plan[#q.plan + 1] = {'ZREM', q[SETS[st]], {members[i]}, 1, 1}
    elseif e.st == nil or e.st == st then
      found(e, st, members[i])
      if e.rec == nil then e.rec = recs[i] end
      if h then
        gone(q, e, h)
        n = n + 1
      else
        setapart(q, e)
      end
    end
  end
  return n
end

-- evict removes the oldest n dead tasks of a queue that has more than DEADMAX, and counts the tasks that go
-- before their time. It returns how many it found: tasks that die in this call are not among them.
local function evict(q, n)
  local old, over, early = call('ZRANGE', q[DEAD], 0, n - 1, 'WITHSCORES'), {}, {}
  local ended = (q.m.jumped > 0 and 0 or now) - DEADFOR -- no time is over while timed work waits (jump.lua)
  for i = 1, #old, 2 do
    local list = tonumber(old[i + 1]) > ended and early or over
    list[#list + 1] = old[i]
  end
  drop(q, 'd', over)
  local gone = drop(q, 'd', early)
  if gone > 0 then bump(q, 'evicted', gone) end
  return #old / 2
end

