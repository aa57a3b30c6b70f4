-- lib: what the scripts of a queue share. It is prepended to each of them,
-- behind base.lua.
--
-- A script reads what it needs into entries and overlays, decides on them alone,
-- and writes at the very end, in commit: Redis does not roll back, so nothing may
-- fail after the first write. Whatever several steps of one call do to a task is
-- one write.

-- The sorted set of each state. A suspect (z) waits beside the others; pending
-- tasks (p) are sorted by the deadline of their lease, those of a group as one member.
local SETS = {w = WAITING, z = SUSPECTS, s = SCHEDULED, r = RETRY, p = LEASES, c = COMPLETED, x = CANCELLED,
  d = DEAD, u = CURSORS}
local SEARCH = {'w', 's', 'r', 'd', 'c', 'x', 'z'} -- where to look for a task with no lease
local LIVE = {w = true, z = true, s = true, r = true, p = true}

-- The numbers in the meta hash.
local FIELDS = {'mark', 'tail', 'head', 'paused', 'cancels', 'touched', 'enqueued', 'requeued',
  'completed', 'dead', 'cancelled', 'deleted', 'failed', 'crashed'}

-- What hangs on a task in the side hash: history and reason, stack, result,
-- progress, checkpoint, large payload (body).
local KINDS = {'h:', 's:', 'r:', 'p:', 'c:', 'b:'}

local SWEPT = '' -- the field that says up to when opened lanes were swept

local now = 0 -- the time of the step under way

-- has reports whether a byte has a flag.
local function has(flags, flag) return floor(flags / flag) % 2 == 1 end

-- number reads n bytes at i, the highest first.
local function number(s, i, n)
  local v = 0
  for j = i, i + n - 1 do v = v * 256 + (byte(s, j) or 0) end
  return v
end

-- pack2 writes a number as 2 bytes, the highest first.
local function pack2(v) return char(floor(v / 256), v % 256) end

-- lookup is an HMGET of any number of fields.
local function lookup(key, fields)
  if #fields <= 500 then return call('HMGET', key, unpack(fields)) end
  local all = {}
  for i = 1, #fields, 500 do
    local last = min(i + 499, #fields)
    local part = call('HMGET', key, unpack(fields, i, last))
    for j = 1, last - i + 1 do all[i + j - 1] = part[j] end
  end
  return all
end

-- open reads the numbers of the n-th queue that the call names.
local function open(n)
  local q = {m = {}, dirty = {}, e = {}, touched = {}, side = {}, unique = {}, windows = {},
    plan = {}, apart = {}, lanes = {}, opened = {}, soon = {}, left = {}, deaths = 0}
  for i = 1, BLOCK do q[i] = KEYS[(n - 1) * BLOCK + i] end
  local v = call('HMGET', q[META], unpack(FIELDS))
  for i = 1, #FIELDS do q.m[FIELDS[i]] = tonumber(v[i] or 0) or 0 end
  return q
end

-- openall opens all queues and sets the clock: never behind what a queue has seen.
local function openall(n)
  local queues = {}
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  for i = 1, n do
    local q = open(i)
    queues[i] = q
    if q.m.mark >= now then now = q.m.mark + 1 end
  end
  return queues
end

local function set(q, field, v) q.m[field] = v; q.dirty[field] = true end
local function bump(q, field, by) q.m[field] = q.m[field] + by; q.dirty[field] = true end

-- Places in waiting: by priority, then by a number that grows at the tail and falls at
-- the head. Those of priority 0 are small, for Redis writes and reads them as text.
local function place(priority, seq) return seq - priority * 281474976710656 end
local function tail(q, priority) bump(q, 'tail', 1); return place(priority, q.m.tail) end
local function front(q, priority) bump(q, 'head', -1); return place(priority, q.m.head) end

-- Records: see record.go for the layout.
local HEADER = 35

-- head reads the header of a record. nil where it is damaged.
local function head(rec)
  if not rec or #rec < HEADER or byte(rec, 1) ~= 1 then return nil end
  local f, g = byte(rec, 2, 3)
  local h = {rec = rec, version = number(rec, 4, 7), created = sub(rec, 11, 17), priority = byte(rec, 18) - 9,
    retries = number(rec, 19, 2), maxretries = number(rec, 21, 2),
    crashes = number(rec, 23, 2), crashlimit = number(rec, 25, 2),
    kind = byte(rec, 27), encoding = byte(rec, 28), headers = number(rec, 29, 3), payload = number(rec, 32, 4),
    keep = 0, snoozes = 0, since = 0,
    untilread = has(f, 2), timed = has(f, 8), life = has(f, 16), window = has(f, 32), cursor = has(f, 64),
    noahead = has(g, 1), side = has(g, 2), large = has(g, 4)}
  local i = HEADER + 1
  if has(f, 1) then h.keep = number(rec, i, 7); i = i + 7 end
  if has(f, 4) then h.snoozes = number(rec, i, 2); h.since = number(rec, i + 2, 7); i = i + 9 end
  h.rest = i
  if h.timed then i = i + 7 end
  if h.life or h.window then
    local n = byte(rec, i) or 0
    h.key = sub(rec, i + 1, i + n)
    i = i + 1 + n
    if h.window then h.keyfor = number(rec, i, 7); i = i + 7 end
  end
  h.cursorat = i
  if h.cursor then i = i + 3 + number(rec, i, 3) end
  h.kindat = i
  h.payloadat = i + h.kind + h.encoding + h.headers
  if h.payloadat + (h.large and 0 or h.payload) ~= #rec + 1 then return nil end
  return h
end

-- compose writes a record anew with what changed in its header.
local function compose(h)
  local f, g, keep, snooze = 0, 0, '', ''
  if h.keep > 0 then f = 1; keep = pack7(h.keep) end
  if h.untilread then f = f + 2 end
  if h.snoozes > 0 then f = f + 4; snooze = pack2(h.snoozes) .. pack7(h.since) end
  if h.timed then f = f + 8 end
  if h.life then f = f + 16 end
  if h.window then f = f + 32 end
  if h.cursor then f = f + 64 end
  if h.noahead then g = 1 end
  if h.side then g = g + 2 end
  if h.large then g = g + 4 end
  return char(1, f, g) .. pack7(h.version) .. h.created .. char(h.priority + 9) ..
    pack2(h.retries) .. pack2(h.maxretries) .. pack2(h.crashes) .. pack2(h.crashlimit) ..
    (h.sizes or sub(h.rec, 27, 35)) .. keep .. snooze .. (h.tail or sub(h.rec, h.rest))
end

-- waits gives the state in which a task waits: as a suspect, or with the others.
local function waits(h)
  if h.crashes > 0 and h.crashes == h.crashlimit - 1 then return 'z' end
  return 'w'
end

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
      e.st, e.was, e.rec, e.lease = 'w', 'w', q.new[id], false
    end
  end
  return e
end

-- found notes where a task was found.
local function found(e, st)
  e.st, e.was = st, st
  return e
end

-- leased notes the lease under which a task was found, false for none.
local function leased(e, value)
  e.lease = value
  if not value then return end
  if has(byte(value, FENCE + 1) or 0, GROUPED) then e.group = sub(value, 1, FENCE) end
  found(e, 'p')
end

-- bare reports whether nothing hangs on a lease with these flags.
local function bare(flags) return flags % GROUPED <= STARTED end

-- expiry gives when the lease of a pending task expires.
local function expiry(q, id, value)
  local grouped = has(byte(value, FENCE + 1) or 0, GROUPED)
  return call('ZSCORE', q[SETS.p], grouped and ALARM .. sub(value, 1, FENCE) or id)
end

-- members gives those of a group that are still in it: ids and leases, in the order of
-- their claim; and how many it had.
local function members(q, fence)
  local ids, leases, all = {}, {}, {}
  for id in string.gmatch(call('HGET', q[CLAIMS], fence) or '', '[^,]+') do all[#all + 1] = id end
  if #all == 0 then return ids, leases, 0 end
  local values = lookup(q[PENDING], all)
  for i, id in ipairs(all) do
    local v = values[i]
    if v and sub(v, 1, FENCE) == fence and has(byte(v, FENCE + 1) or 0, GROUPED) then
      ids[#ids + 1], leases[#leases + 1] = id, v
    end
  end
  return ids, leases, #all
end

-- load finds out where a task stands. A record that stands nowhere does not count.
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
      if call('ZSCORE', q[SETS[st]], id) then return found(e, st) end
    end
  end
  return found(e, false)
end

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

-- move puts a task into a state at a score; false is nowhere.
local function move(q, e, st, score)
  touch(q, e)
  e.st, e.score = st, score
  if st == 's' or st == 'r' or st == 'u' then
    if not q.soon[st] or score < q.soon[st] then q.soon[st] = score end
  end
end

local function rewrite(q, e, h)
  touch(q, e)
  e.rec, e.written = compose(h), true
end

local function lease(q, e, value)
  touch(q, e)
  e.lease, e.leased = value, true
end

-- version of an entry that stands somewhere, nil where its record is damaged.
local function version(e)
  if e.st == 'p' then return number(e.lease, 17, 7) end
  if not e.rec or #e.rec < HEADER or byte(e.rec, 1) ~= 1 then return nil end
  return number(e.rec, 4, 7)
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
  h.version, h.snoozes = now, 0
  rewrite(q, e, h)
  move(q, e, st, now + keep)
end

-- The history of a task: its reason, then its attempts, each behind its length.

local OUTCOMES = 10 -- storage.MaxAttempts

local function attempt(q, e, h, outcome, message, stack)
  local log = aside(q, 'h:' .. e.id) or char(0)
  local first = 2 + (byte(log, 1) or 0)
  local i, n = first, 0
  local second
  while i <= #log do
    i = i + 2 + number(log, i, 2)
    n = n + 1
    if n == 1 then second = i end
  end
  if n >= OUTCOMES then log = sub(log, 1, first - 1) .. sub(log, second) end
  local runner = ''
  local claimed = pack7(0)
  if e.lease then
    runner = sub(e.lease, FENCE + 2)
    claimed = sub(e.lease, 17, 23)
  end
  local item = pack7(now) .. claimed .. outcome .. char(#runner) .. runner .. message
  put(q, 'h:' .. e.id, log .. pack2(#item) .. item)
  put(q, 's:' .. e.id, stack ~= '' and stack or false)
  h.side = true
end

-- die buries a task for a reason.
local function die(q, e, h, reason)
  local log = aside(q, 'h:' .. e.id)
  log = log and sub(log, 2 + byte(log, 1)) or ''
  put(q, 'h:' .. e.id, char(#reason) .. reason .. log)
  h.side = true
  h.version, h.snoozes = now, 0
  freekey(q, h, e.id)
  rewrite(q, e, h)
  move(q, e, 'd', now)
  bump(q, 'dead', 1)
  q.deaths = q.deaths + 1
end

-- setapart puts a damaged record where it stops nobody.
local function setapart(q, e)
  if e.rec then
    q.apart[#q.apart + 1] = e.id
    q.apart[#q.apart + 1] = e.rec
  end
  if LIVE[e.st] then bump(q, 'deleted', 1) end
  if e.st == 'p' and e.lease then unlease(q, e) end
  gone(q, e)
end

-- drop removes tasks that ended long ago, all at once.
local function drop(q, st, ids)
  for i = 1, #ids do
    local e = entry(q, ids[i])
    if e.st == nil or e.st == st then
      found(e, st)
      gone(q, e)
    end
  end
end

-- Lanes: which calls happened, and with what outcome.

-- admit gives "N" for a call that is to happen, "R" and the outcome for one that
-- did, "O" for one older than its lane's last, "E" where its lane is past its life.
local function admit(home, field, seq, opened)
  seq = tonumber(seq)
  if seq == 0 then return 'N' end
  local v = home.known and home.known[field]
  if v == nil then v = call('HGET', home[LANES], field) end
  if v then
    local colon = find(v, ':', 1, true)
    local last = tonumber(sub(v, 1, colon - 1))
    if seq == last then return 'R', sub(v, colon + 1) end
    if seq < last then return 'O' end
  end
  if now - opened > LANELIFE then return 'E' end
  if not v then
    -- The clock of one queue may be ahead of another's, and what it swept not over here.
    local swept = call('HGET', home[LANES], SWEPT)
    if swept and opened <= tonumber(swept) then return 'E' end
    home.opened[#home.opened + 1] = opened
    home.opened[#home.opened + 1] = field
  end
  return 'N'
end

local function remember(home, field, seq, outcome)
  if seq == '0' then return end
  local v = seq .. ':' .. outcome
  home.lanes[#home.lanes + 1] = field
  home.lanes[#home.lanes + 1] = v
  if home.known then home.known[field] = v end -- its repeat may be in the same flush
end

-- Commit.

-- write plans a variadic command with a list of arguments, or a part of it.
local function write(q, command, key, list, from, to)
  to = to or #list
  if to > 0 then q.plan[#q.plan + 1] = {command, q[key], list, from or 1, to} end
end

-- leave notes that n tasks are no longer of a group.
local function leave(q, group, n) q.left[group] = (q.left[group] or 0) + n end

-- planleft plans what becomes of groups that tasks left.
local function planleft(q)
  local over, alarms, fewer = {}, {}, {}
  for group, n in pairs(q.left) do
    local count = tonumber(call('HGET', q[CLAIMS], COUNT .. group) or 0) - n
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

-- planmoves plans what the entries touched have come to: removals first.
local function planmoves(q)
  local rem, add, unset, reset, unlet, let = {}, {}, {}, {}, {}, {}
  for i = 1, #q.touched do
    local e = q.touched[i]
    local st, was = e.st, e.was
    local group = e.group and (st ~= 'p' or e.score)
    if group then leave(q, e.group, 1) end
    if was and was ~= st then
      if not group then
        local list = rem[was]
        if not list then list = {}; rem[was] = list end
        list[#list + 1] = e.id
      end
      if was == 'p' then unlet[#unlet + 1] = e.id end
      if not st then unset[#unset + 1] = e.id end
    end
    if st and e.score then
      local list = add[st]
      if not list then list = {}; add[st] = list end
      list[#list + 1] = e.score
      list[#list + 1] = e.id
    end
    if st and e.written then reset[#reset + 1] = e.id; reset[#reset + 1] = e.rec end
    if st == 'p' and e.leased then let[#let + 1] = e.id; let[#let + 1] = e.lease end
  end
  for st, list in pairs(rem) do write(q, 'ZREM', SETS[st], list) end
  write(q, 'HDEL', PENDING, unlet)
  write(q, 'HDEL', TASKS, unset)
  for st, list in pairs(add) do
    write(q, 'ZADD', SETS[st], list)
    if st == 'w' or st == 'z' then q.work = true end
  end
  if #let > 0 and call('HLEN', q[PENDING]) == 0 then let[#let + 1] = ''; let[#let + 1] = PAD end
  write(q, 'HSET', PENDING, let)
  write(q, 'HSET', TASKS, reset)
end

-- planrest plans what hangs on tasks, keys, damage, lanes and numbers.
local function planrest(q)
  local del, put, free, own, close, last = {}, {}, {}, {}, {}, {}
  for field in pairs(q.sided or {}) do
    local v = q.side[field]
    if v then put[#put + 1] = field; put[#put + 1] = v else del[#del + 1] = field end
  end
  for key in pairs(q.owned or {}) do
    local v, untl = q.unique[key], q.windows[key]
    if v then own[#own + 1] = key; own[#own + 1] = v else free[#free + 1] = key end
    if untl then last[#last + 1] = untl; last[#last + 1] = key end
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
    local old = call('ZRANGEBYSCORE', q[OPENED], '-inf', '(' .. text(now - LANELIFE), 'LIMIT', 0, 100)
    write(q, 'HDEL', LANES, old)
    write(q, 'ZREM', OPENED, old)
    if #old > 0 then
      q.lanes[#q.lanes + 1] = SWEPT
      q.lanes[#q.lanes + 1] = call('ZSCORE', q[OPENED], old[#old])
    end
    write(q, 'ZADD', OPENED, q.opened)
  end
  write(q, 'HSET', LANES, q.lanes)
end

-- plannumbers plans the meta hash, last, when all else is known. A queue in which
-- nothing happened keeps its mark.
local function plannumbers(q)
  if #q.plan == 0 and not next(q.dirty) then return end
  if q.m.mark == 0 and #q.touched == 0 and not next(q.dirty) then return end -- no queue yet
  if now - q.m.touched > 60000000 and (q.used or #q.touched > 0) then set(q, 'touched', now) end
  set(q, 'mark', now)
  local list = {}
  for field in pairs(q.dirty) do
    list[#list + 1] = field
    list[#list + 1] = text(q.m[field])
  end
  write(q, 'HSET', META, list)
end

-- trimdead plans away the oldest dead tasks beyond what a queue keeps.
local function trimdead(q, most)
  if q.deaths == 0 then return end
  local excess = call('ZCARD', q[SETS.d]) + q.deaths - most
  if excess > 0 then
    drop(q, 'd', call('ZRANGE', q[SETS.d], 0, min(excess, q.deaths + 100) - 1))
  end
end

-- sooner reports whether something became due before all else of its state.
local function sooner(q)
  for st, score in pairs(q.soon) do
    local first = call('ZRANGE', q[SETS[st]], 0, 0, 'WITHSCORES')
    if not first[1] or score < tonumber(first[2]) then return true end
  end
  return false
end

-- refusal is the reply where the first write was not permitted. What Redis gives no
-- code of its own (a user without permission) gets one.
local function refusal(first)
  local why = first.err
  if find(why, '^ERR ') or not find(why, '^%-?%u+ ') then why = 'REFUSED ' .. why end
  return {err = why}
end

-- commit writes what the call came to. It returns an error reply, with nothing
-- written, where Redis permits no writing. A call that grows is refused by a full
-- Redis because it begins with a write that may grow; the others begin with one
-- that frees, after which Redis refuses nothing.
local function commit(queues, grows, mostdead)
  local any = false
  for _, q in ipairs(queues) do
    trimdead(q, mostdead)
    planmoves(q)
    planleft(q)
    planrest(q)
    plannumbers(q)
    q.work = q.work or sooner(q)
    any = any or #q.plan > 0
    for _, w in ipairs(q.plan) do -- a key of a wrong type fails here, in time
      call(byte(w[1], 1) == 72 and 'HLEN' or 'ZCARD', w[2])
    end
  end
  if not any then return nil end
  local first
  if grows then
    first = redis.pcall('HSET', queues[1][META], 'mark', text(queues[1].m.mark))
  else
    first = redis.pcall('HDEL', queues[1][META], '')
  end
  if type(first) == 'table' and first.err then return refusal(first) end
  for _, q in ipairs(queues) do
    for _, w in ipairs(q.plan) do
      local command, key, list, to = w[1], w[2], w[3], w[5]
      for i = w[4], to, 500 do call(command, key, unpack(list, i, min(i + 499, to))) end
    end
    if q.work or q.asked then -- a user of Redis may have no channels: a hint must not tear the step
      redis.pcall('PUBLISH', sub(q[META], 1, -5) .. 'wake', (q.work and 'w' or '') .. (q.asked and 'c' or ''))
    end
  end
  return nil
end
