-- commit: lanes, and the writes of a call.

local admit, remember, lower, write, leave, unvoid, pop, commit

do -- a block, because Lua permits a script 200 local variables, and claim.lua and apply.lua need most of them

local SWEPT = '' -- the field of the lanes hash with the latest opening time of the lanes that were swept

-- Lanes remember which calls happened, and with which outcome.

-- admit returns the verdict of judge on a call. For a repeat it also returns the outcome, which has to begin with
-- the letter of its script ("" for any): else it is the outcome of another call. The verdict is "D" for a call that
-- was divided (divide.lua).
function admit(home, field, seq, opened, letter)
  seq, opened = tonumber(seq), tonumber(opened)
  if seq == 0 then return 'N' end
  local v = home.known and home.known[field]
  if v == nil then v = call('HGET', home[LANES], field) end
  local colon = v and find(v, ':', 1, true) or 1
  local verdict = judge(seq, v and (sane(sub(v, 1, colon - 1)) or 0), opened, now) -- 0: it is damaged
  if verdict == 'R' then
    if sub(v, colon + 1) == 'D' then return 'D' end
    if sub(v, colon + 1, colon + #letter) ~= letter then return 'O' end
    return 'R', sub(v, colon + 1)
  end
  if verdict == 'N' and not v then
    -- While the clock was ahead, a step may have swept lanes that have not expired by the clock of now. An
    -- unknown lane that was opened no later than those may be one of them, and its call a repeat. But if
    -- the clock has gone back to before the last of these openings, new lanes are opened there too and have
    -- to be admitted; the owners of the swept lanes have long ceased to repeat calls.
    local swept = sane(call('HGET', home[LANES], SWEPT) or nil) -- nil if it is damaged too
    if swept and swept < now and opened <= swept then return 'E' end
    home.opened[#home.opened + 1] = opened
    home.opened[#home.opened + 1] = field
  end
  return verdict
end

function remember(home, field, seq, outcome)
  if seq == '0' then return end
  local v = seq .. ':' .. outcome
  home.lanes[#home.lanes + 1] = field
  home.lanes[#home.lanes + 1] = v
  if home.known then home.known[field] = v end -- its repeat may be in the same flush
end

-- Commit.

-- Two numbers of a queue decide whether a claim may go the short way. soon is a lower bound of all moments of
-- the queue: when a task falls due, a lease ends, a task or a window expires, a cursor ticks. It is 0
-- if no bound is known, and while the queue is paused or waits after a jump; a general claim computes
-- it anew. odd grows with each suspect that joins. due goes with soon: unless soon is 0, due is the
-- moment when the next task or cursor falls due, 0 for none.

-- lower notes a moment: it lowers soon to it.
function lower(q, at)
  if at < q.m.soon then set(q, 'soon', at) end
end

-- moments notes the effect of an entry's move on these numbers.
local function moments(q, e)
  local st, at = e.st, e.score
  if e.was and TIMED[e.was] and (at or st ~= e.was) then set(q, 'soon', 0) end -- it may have been due next
  if not at then return end
  if st == 'z' then
    bump(q, 'odd', 1)
  elseif st == 'd' then
    lower(q, at + DEADFOR)
  elseif TIMED[st] or ENDED[st] or st == 'p' then
    lower(q, at)
  end
  if TIMED[st] and at < NEVER and (q.m.due == 0 or at < q.m.due) then
    set(q, 'due', at)
    q.news = true -- due first of all: runners that sleep until the next due moment must learn of it
  end
end

-- write plans a variadic command with the arguments from the index from to the index to of a list; by
-- default with all of them.
function write(q, command, key, list, from, to)
  to = to or #list
  if to > 0 then q.plan[#q.plan + 1] = {command, q[key], list, from or 1, to} end
end

-- leave notes that n tasks left a group.
function leave(q, group, n) q.left[group] = (q.left[group] or 0) + n end

-- planleft plans the new counts of groups that tasks left, or the end of the groups.
local function planleft(q)
  local over, alarms, fewer = {}, {}, {}
  for group, n in pairs(q.left) do
    local count = sane(call('HGET', q[CLAIMS], COUNT .. group))
    if not count or count < n then count = #(members(q, group)) end -- it is damaged, or nothing is left of the group
    count = count - n
    if count <= 0 then
      over[#over + 1], over[#over + 2], alarms[#alarms + 1] = group, COUNT .. group, ALARM .. group
    else
      fewer[#fewer + 1], fewer[#fewer + 2] = COUNT .. group, count
    end
  end
  write(q, 'ZREM', SETS.p, alarms)
  write(q, 'HDEL', CLAIMS, over)
  write(q, 'HSET', CLAIMS, fewer)
end

-- unvoid plans the removal of up to MOSTVOID members of voids that concern entries before the first entry
-- of the line, and reports whether voids has no others. UNLINK takes no time, however many members there are.
function unvoid(q, first)
  local all = call('ZCARD', q[VOIDS])
  if all == 0 then return true end
  local over = q.m.void == 0 and not q.guessed and all or call('ZCOUNT', q[VOIDS], '-inf', '(' .. text(first))
  if over == all then
    write(q, 'UNLINK', VOIDS, {q[VOIDS]})
  elseif over > 0 then
    write(q, 'ZREMRANGEBYRANK', VOIDS, {0, min(over, MOSTVOID) - 1})
  end
  return over == all
end

-- pop plans the removal of the first n entries of the line; some is how many of them were void. stay has
-- the numbers and ids of the tasks among them that still wait: they go to waiting with their numbers as
-- scores, which come before the rest of the line. pop returns the result of unvoid.
function pop(q, first, n, some, stay)
  write(q, 'LTRIM', LINE, {n, -1})
  write(q, 'ZADD', SETS.w, stay)
  if some > 0 then bump(q, 'void', -some) end
  return unvoid(q, first + n)
end

-- sweep plans the removal of up to n entries at the head of the line, if most of its entries are void:
-- the line has to shrink even if nobody claims. leaving has ids whose entries will all be void.
local function sweep(q, n, leaving)
  local first, length = firstof(q)
  if q.m.void <= MOSTVOID or 2 * q.m.void <= length then return end
  local ids, stay, some = entries(q, first, 0, n), {}, 0
  for i = 1, #ids do
    local id = ids[i]
    if not id or leaving[id] then some = some + 1 else
      stay[#stay + 1], stay[#stay + 2] = first + i - 1, id
    end
  end
  pop(q, first, #ids, some, stay)
end

-- planline plans the tasks that join the line, in their turn, and the tasks in left, which leave it out of
-- turn. The entries of a task that leaves become void; the entry with which it joins again, and entries that
-- join after that, do not. Suspects get scores between the numbers of the tasks that really join: a task that
-- joined and left in this call has no number.
local function planline(q, left)
  local joiners, last, push, between, void, leaving = q.joiners, q.m.tail, {}, {}, {}, {}
  if #left > 0 then
    for i = 1, #left do leaving[left[i].id] = true end
    sweep(q, 100 + 2 * #left, leaving)
  end
  for i = 2, #joiners do
    if joiners[i][1] < joiners[i - 1][1] then
      table.sort(joiners, function(x, y) return x[1] < y[1] end)
      break
    end
  end
  for i = 1, #joiners do
    local score, id, e = unpack(joiners[i])
    if e and e.st == 'z' then
      between[#between + 1], between[#between + 2] = last + #push + score % 1, id
    else
      push[#push + 1] = id
      if e then e.number = last + #push end
    end
  end
  if call('LLEN', q[LINE]) + #push == 0 then left = {} end -- they had lost their entries
  for i = 1, #left do
    local e = left[i]
    void[2 * i - 1], void[2 * i] = e.number and e.number - 1 or last + #push, e.id
  end
  write(q, 'ZADD', VOIDS, void)
  write(q, 'ZADD', SETS.z, between)
  q.last = {{'RPUSH', q[LINE], push, 1, #push}}
  if #left > 0 then bump(q, 'void', #left) end
  if #push > 0 then bump(q, 'tail', #push) end
  q.work, q.news = q.work or #push > 0, q.news or #between > 0
end

-- planmoves plans the moves and records of the touched entries: removals first.
local function planmoves(q)
  local rem, add, unset, reset, unlet, let, left = {}, {}, {}, {}, {}, {}, {}
  for i = 1, #q.touched do
    local e = q.touched[i]
    local st, was = e.st, e.was
    moments(q, e)
    local group = e.group and (st ~= 'p' or e.score)
    if group then leave(q, e.group, 1) end
    if was == 'k' and (st ~= 'k' or e.joins) then byname.count(q, byname.line(e.member), byname.suspect(e.member), -1) end
    if st == 'k' and e.joins then byname.count(q, byname.line(e.joins), byname.suspect(e.joins), 1) end
    if st == 'k' and e.joins and byte(e.joins, 1) == 107 then q.news = true end -- a caller may know its kind
    if was == 'l' and (st ~= 'l' or e.score) and not e.popped then left[#left + 1] = e end
    if was and was ~= 'l' and not group and (was ~= st or e.joins) then
      local list = rem[was]
      if not list then list = {}; rem[was] = list end
      list[#list + 1] = e.member or e.id
    end
    if was and was ~= st then
      if was == 'p' then unlet[#unlet + 1] = e.id end
      if not st then unset[#unset + 1] = e.id end
    end
    if e.score and (st == 'l' or st == 'z' and e.score % 1 > 0) then -- see spot
      q.joiners[#q.joiners + 1] = {e.score, e.id, e}
    elseif st and e.score then
      local list = add[st]
      if not list then list = {}; add[st] = list end
      list[#list + 1] = e.score
      list[#list + 1] = e.joins or e.id
    end
    if st and e.written then reset[#reset + 1] = e.id; reset[#reset + 1] = e.rec end
    if st == 'p' and e.leased then let[#let + 1] = e.id; let[#let + 1] = e.lease end
  end
  local ends = rem.p or {}
  rem.p = nil
  for st, list in pairs(rem) do write(q, 'ZREM', SETS[st], list) end
  write(q, 'HDEL', PENDING, unlet)
  write(q, 'ZREM', SETS.p, ends)
  write(q, 'HDEL', TASKS, unset)
  for st, list in pairs(add) do
    write(q, 'ZADD', SETS[st], list)
    if st == 'w' then q.work = true elseif st == 'z' then q.news = true end
  end
  if #left > 0 or #q.joiners > 0 then planline(q, left) end
  if #let > 0 and call('HLEN', q[PENDING]) == 0 then let[#let + 1] = ''; let[#let + 1] = PAD end
  write(q, 'HSET', PENDING, let)
  write(q, 'HSET', TASKS, reset)
end

-- planlines plans the fields of the side hash for the lines by name: when a claim last named the kind, or
-- the line began, and how many tasks the line holds, suspects counted apart. In the meta hash, lines is the
-- mark when a line last began: a claim that found no line of its kinds need not search again before it changes. It
-- stays negative while the queue has a limit (limit.lua), a partition or a rest (ring.lua). looks is the moment of
-- the next search for tasks that waited too long (forsake in maintain.lua).
local function planlines(q)
  for line, by in pairs(q.counts) do
    local field = 'l:' .. line
    local v = aside(q, field)
    local n, suspects = 0, 0
    if v then n, suspects = byname.sizes(q, line, v) end
    n, suspects = max(n + by[false], 0), max(suspects + by[true], 0)
    if n + suspects == 0 then put(q, field, false) else
      put(q, field, byname.tallied(v and sub(v, 1, PLACE) or pack7(now), n, suspects))
      if not v then
        if q.m.lines >= 0 then set(q, 'lines', mark) end
        if q.m.looks == 0 then set(q, 'looks', now + floor(DECLINEDFOR / 24)) end
        lower(q, q.m.looks)
      end
    end
  end
end

-- settle arranges the partitions that the call has emptied, and notes the moments of the partitions that wait
-- for one.
function ring.settle(q)
  local lines = {}
  for line, p in pairs(q.parts or {}) do
    if p.was and not p.score and not p.paused then lines[#lines + 1] = line end
  end
  ring.prefetch(q, lines)
  for line, p in pairs(q.parts or {}) do
    if not p.score and (p.paused or q.side[ring.field(line)]) then ring.arrange(q, p) end
    local at, was = p.score, p.was
    if at ~= was and was and was == q.m.due then set(q, 'soon', 0) end
    if at ~= was and at and at >= 0 and at < NEVER then
      lower(q, at)
      if q.m.due == 0 or at < q.m.due then set(q, 'due', at) end
    end
  end
end

-- planring plans the changes of the ring (ring.lua).
local function planring(q)
  if not q.parts then return end
  ring.settle(q)
  local gone, moved, format = {}, {}, string.format
  local digits = format('%d', NEVER) == 'NEVER' and '%d' or '%.0f' -- %d takes a third of the time, but not on 32 bits
  for line, p in pairs(q.parts) do
    local score, was = p.score, p.was
    if p.left and p.left > 0 and not rate.owned(q) then put(q, rate.OWNED, '1') end
    if p.changed or p.left ~= p.stored then put(q, ring.field(line), ring.packed(p)) end
    if score ~= was then
      local rests = score and score >= 0
      if was and was >= 0 and not rests then gone[#gone + 1] = 'q' .. sub(line, 2) end
      if score then moved[#moved + 1], moved[#moved + 2] = format(digits, score), line
      else gone[#gone + 1] = line end
      if rests then moved[#moved + 1], moved[#moved + 2] = text(LISTED), 'q' .. sub(line, 2) end
    end
  end
  write(q, 'ZREM', RING, gone)
  write(q, 'ZADD', RING, moved)
  if #moved > 0 and q.m.lines >= 0 then set(q, 'lines', -1) end
end

-- steady reports whether the clock has not just jumped ahead. The mark of a queue shows it. If there is no queue,
-- a lane shows it that was opened at least JUMPWAIT ago and at most JUMPAFTER ago.
local function steady(q)
  if q.m.mark > 0 then return q.m.jumped == 0 end
  return call('ZCOUNT', q[OPENED], text(now - JUMPAFTER), text(now - JUMPWAIT)) > 0
end

-- planrest plans the changes of the side hash, unique keys, damaged records and lanes.
local function planrest(q)
  local del, put, free, own, close, last = {}, {}, {}, {}, {}, {}
  for field in pairs(q.sided or {}) do
    local v = q.side[field]
    if v then put[#put + 1] = field; put[#put + 1] = v else del[#del + 1] = field end
  end
  for key in pairs(q.owned or {}) do
    local v, untl = q.unique[key], q.windows[key]
    if v then own[#own + 1] = key; own[#own + 1] = v else free[#free + 1] = key end
    if untl then
      lower(q, untl)
      last[#last + 1] = untl; last[#last + 1] = key
    end
    if untl == false then close[#close + 1] = key end
  end
  write(q, 'HDEL', SIDE, del)
  write(q, 'HDEL', UNIQUE, free)
  write(q, 'ZREM', WINDOWS, close)
  write(q, 'HSET', SIDE, put)
  write(q, 'HSET', UNIQUE, own)
  write(q, 'ZADD', WINDOWS, last)
  write(q, 'HSET', DAMAGED, q.apart)
  if #q.opened > 0 then
    if steady(q) then -- else the clock may be ahead
      local old = call('ZRANGEBYSCORE', q[OPENED], '-inf', '(' .. text(now - LANELIFE), 'LIMIT', 0, 100)
      write(q, 'HDEL', LANES, old)
      write(q, 'ZREM', OPENED, old)
      if #old > 0 then
        q.lanes[#q.lanes + 1] = SWEPT
        q.lanes[#q.lanes + 1] = call('ZSCORE', q[OPENED], old[#old])
      end
    end
    write(q, 'ZADD', OPENED, q.opened)
  end
  write(q, 'HSET', LANES, q.lanes)
end

-- plannumbers plans the changes of the meta hash. It comes last, because the other plans change its
-- numbers. A queue in which nothing happened keeps its mark.
local function plannumbers(q)
  if q.guessed then q.dirty.void = nil end -- the field stays damaged until voids is empty
  if #q.plan == 0 and not next(q.dirty) then return end
  if q.m.mark == 0 and #q.touched == 0 and not next(q.dirty) then return end -- no queue yet
  if now - q.m.touched > TOUCHEVERY and (q.used or #q.touched > 0) then set(q, 'touched', now) end
  if q.m.mark == 0 then q.news = true end -- a new queue, in which no process is marked as idle
  set(q, 'mark', mark)
  local clock = mark - now > JUMPBACK and now or 0 -- the mark comes from a clock that was ahead
  if clock ~= q.m.clock then set(q, 'clock', clock) end
  local list = {}
  for field in pairs(q.dirty) do
    list[#list + 1] = field
    list[#list + 1] = text(q.m[field])
  end
  write(q, 'HSET', META, list)
end

-- trimdead plans the removal of the oldest dead tasks, if the queue has more than DEADMAX.
local function trimdead(q)
  if q.deaths == 0 then return end
  local joined = 0 -- how many more tasks join the dead than leave them
  for _, e in ipairs(q.touched) do
    if e.was ~= e.st then joined = joined + (e.st == 'd' and 1 or e.was == 'd' and -1 or 0) end
  end
  local excess = call('ZCARD', q[DEAD]) + joined - DEADMAX
  if excess <= 0 then return end
  if evict(q, min(excess, q.deaths + 100)) < excess then set(q, 'soon', 0) end
end

-- execute makes planned writes.
local function execute(plan)
  for _, w in ipairs(plan) do
    local command, key, list, to = w[1], w[2], w[3], w[5]
    for i = w[4], to, 500 do call(command, key, unpack(list, i, min(i + 499, to))) end
  end
end

-- commit writes the changes of the call. If Redis permits no writes it returns an error reply and has
-- written nothing. A full Redis refuses a call that grows, because the call begins with a write that may
-- take memory. It has a queue for that write, unless it writes a lane alone. The other calls begin with a
-- write that frees memory, after which Redis refuses nothing.
-- With hush commit publishes no wake-ups, because the caller does.
--
-- The order of the writes matters if a crash tears the append-only file: Redis may later execute the
-- first writes of a step of which nothing had happened before, and then the steps that really followed. So
-- a lease has its member of leases for as long as it stands in pending, and entries join the line last, behind
-- the marks of the processes that are woken: a push cannot be repeated without harm. (If a claim has promoted
-- tasks, the writes of the step that takes some follow.) All other writes can, except that a second LTRIM or
-- ZREMRANGEBYRANK takes entries from their tasks: see reindex.lua.
function commit(queues, grows, hush)
  local any = false
  for _, q in ipairs(queues) do
    trimdead(q)
    planmoves(q)
    planlines(q)
    planring(q)
    planleft(q)
    planrest(q)
    plannumbers(q)
    any = any or #q.plan > 0
    for _, w in ipairs(q.plan) do -- a key of a wrong type fails here, before the first write
      local c = byte(w[1], 1)
      call(c == 72 and 'HLEN' or (c == 76 or c == 82) and 'LLEN' or 'ZCARD', w[2])
    end
  end
  if not any then return nil end
  local first
  if grows then
    for _, q in ipairs(queues) do
      if q.m.mark > 0 then first = redis.pcall('HSET', q[META], 'mark', text(q.m.mark)) break end
    end
  end
  first = first or redis.pcall('HDEL', queues[1][META], '')
  if type(first) == 'table' and first.err then return refusal(first) end
  for _, q in ipairs(queues) do execute(q.plan) end
  for _, q in ipairs(queues) do
    if hush then -- nobody is woken
    elseif q.news or q.asked then
      -- The user may have no permission for channels: a failed wake-up must not abort the step.
      redis.pcall('PUBLISH', sub(q[META], 1, -5) .. 'wake', q.asked and 'c' or 'n')
    elseif q.remains or q.work then
      rouse(q[IDLE], q[META], q.remains and 2 or 1, now)
    end
  end
  for _, q in ipairs(queues) do execute(q.last) end
  return nil
end
end

