-- apply: carries out the Txs of one or several calls, each Tx whole or not at all.
--
-- KEYS  the keys of each queue named (keys.go), queue after queue
-- ARGV  1 queues, 2 "1" where a full Redis is to refuse the call, "i" likewise where all
--       are runs of inserts, "c" where all are runs of completions, 3 dead tasks that a
--       queue keeps, 4 calls, then the names of the queues, then each call: lane
--       field, seq, opened, its home queue, Txs; each Tx: operations; each operation:
--       its letter, its queue, the id and what the functions below read. An operation
--       is as many arguments as WIDTH says. Txs of one plain operation can come as a
--       run: instead of a number of operations "c", queue, fence, number of completions,
--       width of their ids (0 where they differ) and the ids with commas between, or "i", queue, first 3 bytes of each record, number, and of each
--       insert the id and the record behind its 17th byte.
-- Returns  now, then for each call what admit says followed by its outcome: the time
--       before its first Tx (7 bytes), then each Tx. The n-th Tx or run happened at
--       that time + n. A Tx that happened is K and, for each insert, change and settle,
--       the letter of the state it led to (a run that happened can be * and that letter,
--       once for all); V, letter, version where the version is
--       not that of the Tx; E, letter, version, length and id of an existing task.
--       A Tx that was refused is R, 2 bytes of count, and obstacles: letter, 2 bytes
--       of the operation's number, and what the letter says (see reply.go).

local WIDTH = {c = 4, C = 5, f = 7, s = 5, r = 4, b = 7, x = 6, i = 6, k = 6, m = 13, d = 4, n = 4}
local SETTLES = {c = true, C = true, f = true, s = true, r = true, b = true, x = true}

-- Where a Change may lead, by state; see storage.CanChange. A pending task is apart.
local CHANGES = {w = 'wsx', z = 'wsx', s = 'wsx', r = 'wsrx', c = 'ws', x = 'wsx', d = 'ws', u = 'u'}
local ENDED = {c = true, x = true, d = true}

local queues = openall(tonumber(ARGV[1]))
local Q = {}
for i, q in ipairs(queues) do Q[ARGV[4 + i]] = q end

local step = 0       -- numbers the Txs
local obstacles      -- of the Tx under way, nil while there are none
local op             -- the number of the operation under way
local decided        -- operation -> id of what is there already, nil while there are none
local out            -- the outcome of the call, in pieces

local function obstacle(letter, rest)
  obstacles = obstacles or {}
  obstacles[#obstacles + 1] = letter .. pack2(op) .. (rest or '')
end

-- letter of a state as callers know it.
local function letter(st)
  if st == 'z' then return 'w' end
  return st or '-'
end

local function existing(q, id)
  local e = load(q, id)
  local v = e.st and version(e) or 0
  return 'E' .. letter(e.st) .. pack7(v) .. char(#id) .. id
end

-- moment reads a due time: "" now, "+" from now, "=" the time itself.
local function moment(due)
  if due == '' then return now end
  if byte(due, 1) == 43 then return now + tonumber(sub(due, 2)) end
  return tonumber(sub(due, 2))
end

-- holderof tells who has a unique key, an insert of this Tx included.
local function holderof(q, key)
  local r = q.reserved
  return holder(q, key) or r and r.step == step and r[key] or nil
end

local function decide(id)
  decided = decided or {}
  decided[op] = id
end

local function reserve(q, key, id)
  if not q.reserved or q.reserved.step ~= step then q.reserved = {step = step} end
  q.reserved[key] = id
end

-- same reports whether a record is what an insert would make.
local function same(q, id, old, new, body)
  local a, b = head(old), head(new)
  if not a or not b or a.cursor ~= b.cursor or a.kind ~= b.kind or a.encoding ~= b.encoding
    or a.payload ~= b.payload or a.large ~= b.large then
    return false
  end
  local names = a.kind + a.encoding - 1
  if sub(old, a.kindat, a.kindat + names) ~= sub(new, b.kindat, b.kindat + names) then return false end
  if a.cursor then -- the declaration leads, behind its length
    local n = number(old, a.cursorat + 3, 3) + 5
    if sub(old, a.cursorat + 3, a.cursorat + n) ~= sub(new, b.cursorat + 3, b.cursorat + n) then return false end
  end
  if a.large then return aside(q, 'b:' .. id) == body end
  return sub(old, a.payloadat) == sub(new, b.payloadat)
end

-- Checks. They change nothing but what is remembered for the Tx under way.

local function checkinsert(a)
  local q, id, rec = Q[ARGV[a + 1]], ARGV[a + 2], ARGV[a + 3]
  local e = entry(q, id)
  if e.rec == nil or e.rec then
    load(q, id)
    if e.st and e.leaving ~= step then
      if same(q, id, e.rec, rec, ARGV[a + 5]) then decide(id)
      else obstacle('c') end
      return
    end
  end
  local f = byte(rec, 2)
  if f >= 16 and floor(f / 16) % 4 > 0 then
    local key = head(rec).key
    local by = holderof(q, key)
    if not by then reserve(q, key, id)
    elseif ARGV[a] == 'k' then decide(by)
    else obstacle('u', char(#by) .. by) end
  end
end

local function checksettle(a)
  local q = Q[ARGV[a + 1]]
  local e = q.e[ARGV[a + 2]]
  local l = e.lease
  if not l or sub(l, 1, FENCE) ~= ARGV[a + 3] then return obstacle('l') end
  local o = ARGV[a]
  if o ~= 'c' and o ~= 'C' and not record(q, e) then obstacle('l') end
end

-- checkversion reports whether an entry is at the version that an operation wants.
local function checkversion(e, want)
  local have = e.st and version(e)
  if not have then obstacle('m') return false end
  if want ~= '0' and tonumber(want) ~= have then obstacle('s', pack7(have)) return false end
  return true
end

local function checkdelete(a)
  local e = load(Q[ARGV[a + 1]], ARGV[a + 2])
  e.leaving = step
  if checkversion(e, ARGV[a + 3]) and e.st == 'p' then obstacle('b', 'p') end
end

local function checkdepend(a)
  checkversion(load(Q[ARGV[a + 1]], ARGV[a + 2]), ARGV[a + 3])
end

-- target gives the state that a change leads to.
local function target(st, to, due)
  if to ~= '' then return to end
  if st == 'u' then return 'u' end
  if due == '' then return letter(st) end
  return st == 'r' and 'r' or 's'
end

-- cancels reports whether a change asks for a cancel and nothing else.
local function cancels(a)
  return ARGV[a + 5] == 'x' and ARGV[a + 4] == '' and ARGV[a + 7] == '' and ARGV[a + 8] == ''
end

local function checkchange(a)
  local q, id = Q[ARGV[a + 1]], ARGV[a + 2]
  local e = load(q, id)
  if not checkversion(e, ARGV[a + 3]) then return end
  if e.st == 'p' then
    if not cancels(a) then obstacle('b', 'p') end
    return
  end
  local h = head(e.rec)
  if not h then return obstacle('m') end
  local to = target(e.st, ARGV[a + 5], ARGV[a + 6])
  local stays = ARGV[a + 5] == '' and to == letter(e.st)
  if not stays and not find(CHANGES[e.st], to, 1, true) then return obstacle('b', letter(e.st)) end
  local t = ARGV[a + 4] ~= '' and Q[ARGV[a + 4]]
  if t and load(t, id).st then return obstacle('c') end
  if h.life and not ENDED[to] and (t or ENDED[e.st]) then
    local by = holderof(t or q, h.key)
    if by then return obstacle('u', char(#by) .. by) end
    reserve(t or q, h.key, id)
  end
end

-- Steps. They happen only where all of the Tx was checked. Each returns what the
-- outcome says of it.

-- wait puts a task where it waits for its claim.
local function wait(q, e, h) move(q, e, waits(h), tail(q, h.priority)) end

local function insert(a)
  local q, id, rec = Q[ARGV[a + 1]], ARGV[a + 2], ARGV[a + 3]
  local e = entry(q, id)
  if e.st == nil then found(e, false) end
  local stamp = pack7(now)
  rec = sub(rec, 1, 3) .. stamp .. stamp .. sub(rec, 18)
  e.rec, e.lease, e.written = rec, false, true
  local f = byte(rec, 2)
  if floor(f / 16) % 4 > 0 then takekey(q, head(rec), id) end
  if ARGV[a + 5] ~= '' then put(q, 'b:' .. id, ARGV[a + 5]) end
  local due = moment(ARGV[a + 4])
  if floor(f / 64) % 2 == 1 then
    move(q, e, 'u', due)
    return 'u'
  end
  bump(q, 'enqueued', 1)
  if due <= now then
    move(q, e, 'w', tail(q, byte(rec, 18) - 9))
    return 'w'
  end
  move(q, e, 's', due)
  return 's'
end

local function delete(a)
  local q = Q[ARGV[a + 1]]
  local e = entry(q, ARGV[a + 2])
  local h = head(e.rec)
  if LIVE[e.st] then
    bump(q, 'deleted', 1)
    if h then freekey(q, h, e.id) end
  end
  gone(q, e, h)
end

-- replace puts new parts into a record: payload, headers, cursor.
local function replace(q, e, h, parts, a)
  local rec = h.rec
  local before = sub(rec, h.rest, h.cursorat - 1)
  local cursor = sub(rec, h.cursorat, h.kindat - 1)
  local kind = sub(rec, h.kindat, h.kindat + h.kind - 1)
  local i = h.kindat + h.kind
  local encoding = sub(rec, i, i + h.encoding - 1)
  i = i + h.encoding
  local headers = sub(rec, i, i + h.headers - 1)
  local payload = sub(rec, h.payloadat)
  local size = h.payload
  if find(parts, 'p', 1, true) then
    encoding, payload, size = ARGV[a + 1], ARGV[a + 2], #ARGV[a + 2]
    if h.large then put(q, 'b:' .. e.id, false) end
    h.large = find(parts, 'P', 1, true) ~= nil
    if h.large then
      put(q, 'b:' .. e.id, payload)
      payload = ''
    end
  end
  if find(parts, 'h', 1, true) then headers = ARGV[a + 3] end
  if find(parts, 'c', 1, true) then cursor = ARGV[a + 4] end
  h.sizes = char(#kind, #encoding, floor(#headers / 65536)) .. pack2(#headers % 65536) ..
    pack2(floor(size / 65536)) .. pack2(size % 65536)
  h.tail = before .. cursor .. kind .. encoding .. headers .. payload
end

-- carry takes a task, with what hangs on it, to another queue.
local function carry(q, e, h, t, from, to)
  local moved = entry(t, e.id)
  if moved.st == nil then found(moved, false) end
  moved.lease = false
  if h.side or h.large then
    for _, kind in ipairs(KINDS) do
      local v = aside(q, kind .. e.id)
      put(t, kind .. e.id, v)
    end
  end
  freekey(q, h, e.id)
  if LIVE[from] and LIVE[to] then
    bump(q, 'deleted', 1)
    bump(t, 'enqueued', 1)
  end
  gone(q, e, h)
  return moved
end

-- mark asks a pending task to be cancelled.
local function mark(q, e)
  local flags = byte(e.lease, FENCE + 1)
  if not has(flags, ASKED) then
    lease(q, e, sub(e.lease, 1, FENCE) .. char(flags + ASKED) .. sub(e.lease, FENCE + 2))
    bump(q, 'cancels', 1)
    q.asked = true
  end
  return 'Vp' .. sub(e.lease, 17, 23)
end

-- renew makes an ended task start anew.
local function renew(q, e, h)
  h.retries, h.crashes, h.snoozes, h.noahead = 0, 0, 0, false
  if h.side then
    put(q, 'h:' .. e.id, false)
    put(q, 's:' .. e.id, false)
    put(q, 'r:' .. e.id, false)
  end
end

-- reach gives the state and the score to which a change that is no end leads, nil
-- where the task stays where it is.
local function reach(q, e, a, to)
  local from, due = letter(e.st), ARGV[a + 6]
  local moved = ARGV[a + 4] ~= ''
  if due == '' and from == to and not moved and not (to == 'w' and ARGV[a + 7] ~= '') then return nil end
  if to == 'w' then return 'w' end
  if due ~= '' then
    local at = moment(due)
    if to ~= 'u' and at <= now then return 'w' end
    return to, at
  end
  if from == 'w' then return 'w' end
  if ENDED[from] and not ENDED[to] then return 'w' end
  return to, e.score or tonumber(call('ZSCORE', q[SETS[e.st]], e.id)) or now
end

local function change(a)
  local q, parts = Q[ARGV[a + 1]], ARGV[a + 8]
  local e = entry(q, ARGV[a + 2])
  if e.st == 'p' then return mark(q, e) end
  if e.st == 'x' and cancels(a) then return 'Vx' .. pack7(version(e)) end
  local from, to = e.st, target(e.st, ARGV[a + 5], ARGV[a + 6])
  local h = head(e.rec)
  if ARGV[a + 7] ~= '' then h.priority = tonumber(ARGV[a + 7]) end
  if parts ~= '' then replace(q, e, h, parts, a + 8) end
  local t = ARGV[a + 4] ~= '' and Q[ARGV[a + 4]]
  local again = ENDED[from] and not ENDED[to]
  local st, score = reach(q, e, a, to)
  if to == 'x' and from ~= 'x' then
    st, score = to, now + h.keep
    bump(q, 'cancelled', 1)
    freekey(q, h, e.id)
    if h.keep == 0 then
      gone(q, e, h)
      return 'x'
    end
  end
  if again then renew(q, e, h) end
  h.version = now
  if t then
    e = carry(q, e, h, t, from, to)
    q = t
  end
  if again then bump(q, 'requeued', 1) end
  if h.life and not ENDED[to] and (again or t) then takekey(q, {life = true, key = h.key}, e.id) end
  rewrite(q, e, h)
  if st == 'w' then
    wait(q, e, h)
    return 'w'
  end
  if st then move(q, e, st, score) end
  return letter(e.st)
end

local function complete(q, e, result)
  bump(q, 'completed', 1)
  if bare(byte(e.lease, FENCE + 1) or 0) and not result then
    move(q, e, false)
    e.rec, e.lease = false, false
    return 'c'
  end
  local h = record(q, e)
  unlease(q, e, h)
  if not h then
    gone(q, e)
    return 'c'
  end
  local keep = h.keep
  if keep == 0 and h.untilread then keep = 604800000000 -- storage.DefaultUnreadKeep
  elseif keep == 0 and result then keep = 3600000000 end -- storage.DefaultResultKeep
  if result and keep > 0 then
    put(q, 'r:' .. e.id, result)
    h.side = true
  end
  ended(q, e, h, 'c', keep)
  return 'c'
end

-- settle ends a claim in any way but completion. count is the failure it adds.
local function settle(q, e, to, count, due, reason)
  local h = e.h
  local asked = has(byte(e.lease, FENCE + 1), ASKED)
  local counted = h.retries + count
  unlease(q, e, h)
  if count > 0 then
    h.retries = counted
    bump(q, 'failed', 1)
  end
  h.snoozes = to == 's' and not asked and min(h.snoozes + 1, 65535) or 0
  if h.snoozes == 1 then h.since = now end
  if asked or to == 'x' then
    bump(q, 'cancelled', 1)
    ended(q, e, h, 'x', h.keep)
    return 'x'
  end
  if to == 'd' or count > 0 and counted > h.maxretries then
    die(q, e, h, reason)
    return 'd'
  end
  h.version = now
  rewrite(q, e, h)
  if to == 'w' then move(q, e, waits(h), front(q, h.priority)) else move(q, e, to, now + due) end
  return to
end

local function settling(a)
  local q = Q[ARGV[a + 1]]
  local e = q.e[ARGV[a + 2]]
  e.h = head(e.rec)
  return q, e
end

local CHECKS = {i = checkinsert, k = checkinsert, m = checkchange, d = checkdelete, n = checkdepend}
local STEPS = {
  i = insert, k = insert, m = change, d = delete,
  n = function() end,
  c = function(a)
    local q = Q[ARGV[a + 1]]
    return complete(q, q.e[ARGV[a + 2]])
  end,
  C = function(a)
    local q = Q[ARGV[a + 1]]
    return complete(q, q.e[ARGV[a + 2]], ARGV[a + 4])
  end,
  r = function(a)
    local q, e = settling(a)
    return settle(q, e, 'w', 0)
  end,
  f = function(a)
    local q, e = settling(a)
    attempt(q, e, e.h, 'f', ARGV[a + 5], ARGV[a + 6])
    return settle(q, e, 'r', 1, tonumber(ARGV[a + 4]), 'out of retries') -- storage.ReasonRetries
  end,
  s = function(a)
    local q, e = settling(a)
    return settle(q, e, 's', 0, tonumber(ARGV[a + 4]))
  end,
  b = function(a)
    local q, e = settling(a)
    attempt(q, e, e.h, 'b', ARGV[a + 5], ARGV[a + 6])
    return settle(q, e, 'd', 0, 0, ARGV[a + 4])
  end,
  x = function(a)
    local q, e = settling(a)
    attempt(q, e, e.h, 'x', ARGV[a + 4], ARGV[a + 5])
    return settle(q, e, 'x', 0)
  end,
}

-- after gives where what follows the Tx or run at a begins, and how many Txs it is.
local function after(a)
  local n = ARGV[a]
  if n == 'c' then return a + 6, tonumber(ARGV[a + 3]) end
  if n == 'i' then return a + 4 + 2 * ARGV[a + 3], tonumber(ARGV[a + 3]) end
  a = a + 1
  for _ = 1, tonumber(n) do a = a + WIDTH[ARGV[a]] end
  return a, 1
end

local function want(q, list, v)
  local l = q[list]
  if not l then l = {}; q[list] = l end
  l[#l + 1] = v
end

-- note says what the operations of the Tx at a will need.
local function note(a)
  local n = tonumber(ARGV[a])
  if not n then return end
  a = a + 1
  for _ = 1, n do
    local o = ARGV[a]
    if SETTLES[o] then want(Q[ARGV[a + 1]], 'settled', ARGV[a + 2])
    elseif o == 'i' or o == 'k' then want(Q[ARGV[a + 1]], 'inserted', ARGV[a + 2]) end
    a = a + WIDTH[o]
  end
end

-- prefetch reads what most operations need, a command for each queue.
local function prefetch(a, calls)
  for _ = 1, calls do
    want(Q[ARGV[a + 3]], 'fields', ARGV[a])
    local txs = tonumber(ARGV[a + 4])
    a = a + 5
    while txs > 0 do
      note(a)
      local n
      a, n = after(a)
      txs = txs - n
    end
  end
  for _, q in ipairs(queues) do
    if q.fields then
      q.known = {}
      local lanes = lookup(q[LANES], q.fields)
      for i, field in ipairs(q.fields) do q.known[field] = lanes[i] end
    end
    if q.settled then
      local leases = lookup(q[PENDING], q.settled)
      for i, id in ipairs(q.settled) do
        leased(entry(q, id), leases[i])
      end
    end
    if q.inserted then
      local recs = lookup(q[TASKS], q.inserted)
      for i, id in ipairs(q.inserted) do entry(q, id).rec = recs[i] end
    end
  end
end

-- single carries out one operation of a run as a Tx of its own: o has its arguments.
local function single(o)
  local argv, n = ARGV, #out + 1
  ARGV = o
  obstacles, decided, op = nil, nil, 1
  local check = CHECKS[o[1]] or checksettle
  check(1)
  if obstacles then out[n] = 'R' .. pack2(1) .. obstacles[1]
  elseif decided then out[n] = 'K' .. existing(Q[o[2]], decided[1])
  else out[n] = 'K' .. STEPS[o[1]](1) end
  ARGV = argv
end

-- completions carries out a run of completions. Those on which nothing hangs need no
-- entry: their leases say so.
local function completions(a)
  local q, fence, named = Q[ARGV[a + 1]], ARGV[a + 2], {}
  for id in string.gmatch(ARGV[a + 5], '[^,]+') do named[#named + 1] = id end
  local leases = lookup(q[PENDING], named)
  local done, known = q.done or {}, q.e
  q.done = done
  local ids, alarms, said = {}, {}, #out
  for i, id in ipairs(named) do
    local l = leases[i]
    local flags = l and sub(l, 1, FENCE) == fence and byte(l, FENCE + 1)
    if flags and bare(flags) and not done[id] and not known[id] then
      done[id] = true
      ids[#ids + 1] = id
      if not has(flags, GROUPED) then alarms[#alarms + 1] = id end
      out[said + i] = 'Kc'
    else
      local e = entry(q, id)
      if e.lease == nil then leased(e, l) end
      single({'c', ARGV[a + 1], id, fence})
    end
  end
  bump(q, 'completed', #ids)
  q.used = q.used or #ids > 0
  if #ids > #alarms then leave(q, fence, #ids - #alarms) end
  write(q, 'ZREM', SETS.p, alarms)
  write(q, 'HDEL', PENDING, ids)
  write(q, 'HDEL', TASKS, ids)
end

-- insertions carries out a run of inserts that are due now, have no unique key and no
-- large payload, and are no cursors.
local function insertions(a)
  local q, lead, n = Q[ARGV[a + 1]], ARGV[a + 2], tonumber(ARGV[a + 3])
  local ids = {}
  for i = 1, n do ids[i] = ARGV[a + 2 + 2 * i] end
  local recs = lookup(q[TASKS], ids)
  local stamp = pack7(now)
  local stamped = lead .. stamp .. stamp
  local known, done, new, m, said, k = q.e, q.done or {}, q.new or {}, q.m, #out, 0
  q.new = new
  local add, set = {}, {}
  for i = 1, n do
    local id, rest = ids[i], ARGV[a + 3 + 2 * i]
    if not recs[i] and not known[id] and not new[id] and not done[id] then
      local rec = stamped .. rest
      new[id] = rec
      m.tail = m.tail + 1
      add[k + 1], add[k + 2] = place(byte(rest, 1) - 9, m.tail), id
      set[k + 1], set[k + 2] = id, rec
      k = k + 2
      out[said + i] = 'Kw'
    else
      local e = entry(q, id)
      if e.rec == nil then e.rec = recs[i] end
      single({'i', ARGV[a + 1], id, lead .. string.rep(char(0), 14) .. rest, '', ''})
    end
  end
  bump(q, 'tail', 0)
  bump(q, 'enqueued', k / 2)
  if k > 0 then q.work, q.used = true, true end
  write(q, 'ZADD', SETS.w, add)
  write(q, 'HSET', TASKS, set)
end

-- transact carries out one Tx whose operations begin at a, or says why not.
local function transact(a, ops)
  step = step + 1
  now = now + 1
  obstacles, decided = nil, nil
  local at, n = a, #out + 1
  for i = 1, ops do
    op = i
    local o = ARGV[at]
    local check = CHECKS[o] or checksettle
    check(at)
    at = at + WIDTH[o]
  end
  if obstacles then
    out[n] = 'R' .. pack2(#obstacles) .. table.concat(obstacles)
    return at
  end
  out[n] = 'K'
  at = a
  local released, told
  for i = 1, ops do
    local o = ARGV[at]
    out[n + i] = ''
    if decided and decided[i] then
      told = told or {}
      told[#told + 1] = {n + i, Q[ARGV[at + 1]], decided[i]}
    elseif o == 'r' and ops > 1 then
      released = released or {}
      released[#released + 1] = {n + i, at}
    else
      out[n + i] = STEPS[o](at) or ''
    end
    at = at + WIDTH[o]
  end
  -- Those released go to the head from the last to the first: they keep their order.
  for i = released and #released or 0, 1, -1 do out[released[i][1]] = STEPS.r(released[i][2]) end
  -- What was there already is told last: as this Tx leaves it.
  for i = 1, told and #told or 0 do out[told[i][1]] = existing(told[i][2], told[i][3]) end
  return at
end

-- carryout carries out the Txs of one call, which begin at a.
local function carryout(a, txs)
  out = {pack7(now)}
  while txs > 0 do
    local n = 1
    if ARGV[a] == 'c' or ARGV[a] == 'i' then
      step = step + 1
      now = now + 1
      if ARGV[a] == 'c' then completions(a) else insertions(a) end
      a, n = after(a)
    else
      a = transact(a + 1, tonumber(ARGV[a]))
    end
    txs = txs - n
  end
  return a
end

local function skip(a, txs)
  while txs > 0 do
    local n
    a, n = after(a)
    txs = txs - n
  end
  return a
end

prefetch(5 + #queues, tonumber(ARGV[4]))
local reply = {0}
local a = 5 + #queues
for _ = 1, tonumber(ARGV[4]) do
  local field, seq, home, txs = ARGV[a], ARGV[a + 1], Q[ARGV[a + 3]], tonumber(ARGV[a + 4])
  local verdict, outcome = admit(home, field, seq, tonumber(ARGV[a + 2]))
  if verdict == 'N' then
    a = carryout(a + 5, txs)
    outcome = 'A' .. table.concat(out)
    remember(home, field, seq, outcome)
  else
    a = skip(a + 5, txs)
  end
  reply[#reply + 1] = verdict .. (outcome or '')
end
local refused = commit(queues, ARGV[2] == '1' or ARGV[2] == 'i', tonumber(ARGV[3]))
if refused then return refused end
reply[1] = text(now)
return reply
