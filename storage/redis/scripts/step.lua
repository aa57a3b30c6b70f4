-- step: the operations of apply.lua, one function for each.

-- An operation happens only after all checks of its Tx have passed. Its function returns its part of the
-- outcome, such as the letter of the task's state.

local STEPS

do
local function insert(a)
  local q, id, rec = Q[ARGV[a + 1]], ARGV[a + 2], ARGV[a + 3]
  local e = entry(q, id)
  if e.st == nil then found(e, false) end
  local due, g, place = moment(ARGV[a + 4]), byte(rec, 3), ''
  local later = due > now and floor(byte(rec, 2) / 64) % 2 == 0
  if later then
    bump(q, 'turn', 1)
    g, place = g + HASPLACE, pack7(q.m.turn)
  end
  rec = sub(rec, 1, 2) .. char(g) .. pack7(mark) .. pack7(now) .. sub(rec, 18, HEADER) .. place .. sub(rec, HEADER + 1)
  e.rec, e.lease, e.written = rec, false, true
  local f = byte(rec, 2)
  if floor(f / 16) % 4 > 0 then unique.take(q, head(rec), id) end
  if ARGV[a + 5] ~= '' then put(q, 'b:' .. id, ARGV[a + 5]) end
  if floor(f / 64) % 2 == 1 then
    move(q, e, 'u', due)
    return 'u'
  end
  bump(q, 'enqueued', 1)
  if not later and has(g, INPARTITION) then
    local h = head(rec)
    local member = ring.place(q, h, id)
    rewrite(q, e, h)
    move(q, e, 'k', 0, member)
    return 'w'
  end
  if not later then
    move(q, e, spot(q, 'w', byte(rec, 18) - MAXPRIORITY))
    return 'w'
  end
  move(q, e, 's', due, place .. id)
  return 's'
end

local function delete(a)
  local q = Q[ARGV[a + 1]]
  local e = entry(q, ARGV[a + 2])
  remove(q, e, head(e.rec))
end

-- replace puts a new payload, headers or cursor into a record: parts has the letters of those that
-- change, and the arguments behind a have the new values.
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

-- carry moves a task and its fields of the side hash to another queue, and returns its entry there.
local function carry(q, e, h, t, from)
  local moved = entry(t, e.id)
  if moved.st == nil then found(moved, false) end
  moved.lease = false
  if h.side or h.large then
    for _, kind in ipairs(KINDS) do
      local v = aside(q, kind .. e.id)
      put(t, kind .. e.id, v)
    end
  end
  unique.free(q, h, e.id)
  if LIVE[from] then
    bump(q, 'deleted', 1)
    bump(t, 'enqueued', 1)
  end
  gone(q, e, h)
  return moved
end

-- askcancel notes in the lease of a pending task that it is to be cancelled.
local function askcancel(q, e)
  local flags = byte(e.lease, FENCE + 1)
  if not has(flags, ASKED) then
    lease(q, e, sub(e.lease, 1, FENCE) .. char(flags + ASKED) .. sub(e.lease, FENCE + 2))
    bump(q, 'cancels', 1)
    q.asked = true
  end
  return 'Vp' .. sub(e.lease, 17, 23)
end

-- renew prepares an ended task to start anew. Its history goes on.
local function renew(q, e, h)
  h.retries, h.crashes, h.snoozes, h.noahead = 0, 0, 0, false
  history.why(q, e, h, '')
  if h.side then put(q, 'r:' .. e.id, false) end
  if byte(h.parts, 1) == RUN then -- the run that completed it
    local n = number(h.parts, 2, 2)
    history.log(q, e, h, sub(h.parts, 4, 3 + n))
    h.parts = sub(h.parts, 4 + n)
  end
  history.log(q, e, h, history.attempted(e, 'q', ''))
  bump(q, 'requeued', 1)
end

local function scoreof(q, e) return e.score or tonumber(call('ZSCORE', q[SETS[e.st]], e.member or e.id) or nil) end

-- reach returns the state and the score to which a change leads that does not end the task, nil if
-- the task stays in its place.
local function reach(q, e, a, to)
  local from, due = letter(e.st), ARGV[a + 6]
  local moved = ARGV[a + 4] ~= ''
  local declined = e.st == 'k' and byte(e.joins or e.member, 1) == 107
  local rejoins = to == 'w' and (ARGV[a + 7] ~= '' or ARGV[a + 13] ~= '' or declined and ARGV[a + 5] == 'w')
  if due == '' and from == to and not moved and not rejoins then return nil end
  if to == 'w' then return 'w' end
  if due ~= '' then
    local at = moment(due)
    if to ~= 'u' and at <= now then return 'w' end
    if from == to and at == scoreof(q, e) then return nil end
    return to, at
  end
  if from == 'w' then return 'w' end
  return to, scoreof(q, e) or now
end

local function change(a)
  local q, parts = Q[ARGV[a + 1]], ARGV[a + 8]
  local e = entry(q, ARGV[a + 2])
  local again = requeues(a)
  if e.st == 'p' then return askcancel(q, e) end
  if e.st == 'x' and not again then return 'Vx' .. pack7(version(e)) end
  local from, to = e.st, target(e.st, a)
  local h = head(e.rec)
  if to == 'x' then
    finish(q, e, h, 'x', h.keep)
    return 'x'
  end
  if ARGV[a + 7] ~= '' then h.priority = tonumber(ARGV[a + 7]) end
  if ARGV[a + 13] ~= '' then h.partition = sub(ARGV[a + 13], 2) end
  if ARGV[a + 14] ~= '' then h.parts = part.without(h.parts, COSTPART) .. sub(ARGV[a + 14], 2) end
  if parts ~= '' then replace(q, e, h, parts, a + 8) end
  local t = ARGV[a + 4] ~= '' and Q[ARGV[a + 4]]
  local st, score = reach(q, e, a, to)
  if forgets(from, a) and h.side then
    put(q, 'p:' .. e.id, false)
    put(q, 'c:' .. e.id, false)
  end
  if again then renew(q, e, h) end
  h.version = mark
  if t then
    e = carry(q, e, h, t, from)
    q = t
  end
  if h.life and not ENDED[to] and (again or t) then unique.take(q, {life = true, key = h.key}, e.id) end
  if st == 'w' then
    rejoin(q, e, h, 'tail')
    return 'w'
  end
  if st then stand(q, e, h, st, score) else rewrite(q, e, h) end
  return letter(e.st)
end

local BARE = {} -- stands for the header of a record from which the end of its task needs nothing

local function complete(a)
  local q, result = Q[ARGV[a + 1]], ARGV[a] == 'C' and ARGV[a + 4]
  local e = q.e[ARGV[a + 2]]
  local plain = (byte(e.lease, FENCE + 1) or 0) % COUNTED <= STARTED and not result
  local h = plain and BARE or record(q, e)
  local run = h and not plain and (h.keep > 0 or h.untilread or result) and history.attempted(e, 'c', '')
  unlease(q, e, h)
  if plain or not h then
    finish(q, e, h, 'c', 0)
    return 'c'
  end
  h.snoozes = 0
  if h.side then history.why(q, e, h, '') end
  local keep = h.keep
  if keep == 0 and h.untilread then keep = UNREADKEEP
  elseif keep == 0 and result then keep = RESULTKEEP end
  if run then h.parts = char(RUN) .. pack2(#run) .. run .. h.parts end
  if result and keep > 0 then
    put(q, 'r:' .. e.id, result)
    h.side = true
  end
  finish(q, e, h, 'c', keep)
  return 'c'
end

-- settle ends a claim in any other way than completion. The arguments are the delay, which for a release is how long
-- the partition rests, the reason for which the
-- task dies or snoozes, and the attempt for the history: message, stack, and outcome, "" for none.
local function settle(a)
  local q, to, reason, outcome = Q[ARGV[a + 1]], SETTLES[ARGV[a]], ARGV[a + 5], ARGV[a + 8]
  local e = q.e[ARGV[a + 2]]
  local h, asked = head(e.rec), has(byte(e.lease, FENCE + 1), ASKED)
  if outcome ~= '' then history.attempt(q, e, h, outcome, ARGV[a + 6], ARGV[a + 7]) end
  unlease(q, e, h)
  if to == 'r' then
    h.retries = h.retries + 1
    bump(q, 'failed', 1)
    if h.retries > h.maxretries then to, reason = 'd', REASONRETRIES end
  end
  h.snoozes = to == 's' and not asked and min(h.snoozes + 1, 65535) or 0
  if h.snoozes == 1 then h.since = now end
  history.why(q, e, h, h.snoozes > 0 and reason or '')
  if asked or to == 'x' then
    finish(q, e, h, 'x', h.keep)
    return 'x'
  end
  if to == 'd' then
    die(q, e, h, reason)
    return 'd'
  end
  if to == 'k' or to == 'w' then
    local rests = to == 'w' and tonumber(ARGV[a + 4]) or 0
    if rests > 0 then ring.throttle(q, h.partition, min(now + rests, NEVER - 1)) end
    rejoin(q, e, h, to == 'k' and 'kind' or 'head')
    return 'w'
  end
  h.version = mark
  stand(q, e, h, to, now + tonumber(ARGV[a + 4]))
  return to
end

STEPS = {
  i = insert, k = insert, m = change, d = delete, n = function() end, c = complete, C = complete,
  f = settle, s = settle, r = settle, b = settle, x = settle, y = settle,
}
end

