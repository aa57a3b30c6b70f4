-- claim: maintains the queues named, then takes tasks from them under a lease.
--
-- KEYS  the keys of each queue (keys.go), queue after queue; the first is home
-- ARGV  1 queues, 2 lane field, 3 seq, 4 opened, 5 token, 6 runner, 7 most tasks,
--       8 how many start, 9 "1" where a suspect is wanted, "t" to tell of one, 10 lease (µs), 11 how long
--       dead tasks are kept (µs), 12 dead tasks that a queue keeps, 13... for each
--       queue the most tasks of it, 0 as many as of all, negative none
-- Returns  {verdict, now, next due or 0, "m" where maintenance is left over, "t" where
--       tasks are that could be taken, "c" for cancels, version
--       of all tasks, how many were taken, whether a suspect was, queues...}. A queue
--       is {info, ids with commas between, length of each record (4 bytes), {records in
--       pieces}, {cursor id, record, ...}, last}, or the last alone: "f" where it may be
--       forgotten, "!" and the tasks that ended (maintain.lua), "b" where nothing but
--       plain tasks waited and were pending. info is empty,
--       where the first tasks of the call started and all have the deadline now +
--       lease, or has 8 bytes for each task: 1 if started, and its deadline.

-- paused reports whether tasks may not be taken, and resumes where its time is over.
local function paused(q)
  local untl = q.m.paused
  if untl > 0 and untl <= now and q.m.jumped == 0 then set(q, 'paused', 0) end
  return untl < 0 or untl > now
end

-- The taking. Lua has room for 200 names in a scope: what has one use each has scopes of its own.

local taken, bytes, full, suspect = 0, 0, false, false
local claimed = 0 -- the version of all tasks taken
local deadline = '' -- of their lease
local fence = ''
local needs = {} -- flags of a record -> flags of its lease

-- leaseof gives the flags that the lease of a record begins with. RECORD says that
-- its end takes more than its removal.
local function leaseof(rec)
  local f, g = byte(rec, 2, 3)
  local k = f * 256 + g
  local v = needs[k]
  if not v then
    v = (has(f, 1) or has(f, 2) or has(f, 16) or has(g, 2) or has(g, 4)) and RECORD or 0
    needs[k] = v
  end
  return v
end

-- give adds a task to those taken. False where the answer has no room for it.
local function give(q, id, rec, e)
  local flags = leaseof(rec)
  local size = has(byte(rec, 3), 4) and number(rec, 32, 4) or #rec - HEADER
  if taken > 0 and bytes + size > MAXBYTES then
    full = true
    return false
  end
  bytes = bytes + size
  if taken < starts then flags = flags + STARTED end
  taken = taken + 1
  local value = q.leases[flags]
  if not value then
    value = fence .. char(flags) .. ARGV[6]
    q.leases[flags] = value
  end
  if e then
    move(q, e, 'p', deadline)
    lease(q, e, ranked(value, #q.ids))
  else
    local n = #q.deadlines
    q.deadlines[n + 1], q.deadlines[n + 2] = deadline, id
    q.pending[n + 1], q.pending[n + 2] = id, value
  end
  if has(byte(rec, 3), 4) then rec = rec .. (call('HGET', q[SIDE], 'b:' .. id) or '') end
  q.ids[#q.ids + 1], q.recs[#q.recs + 1] = id, rec
  return true
end

-- wanted reports whether a waiting task may be taken as the next one.
local function wanted(rec) return taken < starts or byte(rec, 3) % 2 == 0 end

-- giveplain is give for a record on which nothing hangs, as most are, without a call
-- for each thing to know. It returns false where give has to look.
local function giveplain(q, id, rec)
  local form, f, g = byte(rec, 1, 3)
  local size = #rec - HEADER
  if form ~= 1 or g ~= 0 and g ~= HASPLACE or size < 0 or bytes + size > MAXBYTES or needs[f * 256] ~= 0 then return false end
  local value = q.leases[taken < starts and STARTED or 0]
  if not value then return false end -- give makes it
  bytes = bytes + size
  taken = taken + 1
  local n, deadlines, pending = q.n, q.deadlines, q.pending
  deadlines[n + 1], deadlines[n + 2] = deadline, id
  pending[n + 1], pending[n + 2] = id, value
  q.n = n + 2
  q.ids[#q.ids + 1], q.recs[#q.recs + 1] = id, rec
  return true
end

local takeplain, takemixed

-- shift takes the first n entries off the line, as pop does. short is that more entries are
-- there than this call has gone past.
local function shift(q, first, length, n, some, stay)
  q.short = some > 0 and n < length
  local none
  if n > 0 then none = pop(q, first, n, some, stay) else none = unvoid(q, first) end
  if none and q.m.void ~= 0 then set(q, 'void', 0) end
end

do
local PASSED = 100 -- how many tasks a claim passes over

-- through takes what it may of tasks in their order, up to a limit. It gives how many it came
-- past, and notes of the others what became of them: removed, passed, or void.
local function through(q, found, limit, note)
  local recs = lookup(q[TASKS], found)
  q.n = #q.deadlines
  for i = 1, #found do
    local id, rec = found[i], recs[i]
    if taken >= limit then return i - 1 end
    if id == '' then note(i, 'void')
    elseif rec and giveplain(q, id, rec) then note(i, 'removed')
    elseif not rec or #rec < HEADER or byte(rec, 1) ~= 1 then
      local e = entry(q, id)
      e.st, e.was, e.rec = 'w', false, rec
      setapart(q, e)
      if rec then q.bad[#q.bad + 1] = id end
      note(i, 'removed')
    elseif not wanted(rec) then
      q.passed = true
      note(i, 'passed')
    elseif give(q, id, rec) then
      note(i, 'removed')
      q.n = #q.deadlines
    else
      return i - 1
    end
  end
  return #found
end

-- takeranked takes from waiting, between two ranks.
local function takeranked(q, at, to, limit, past)
  while at < to and taken < limit and not full and past.passed < PASSED do
    local found = call('ZRANGE', q[SETS.w], at, min(at + min(limit - taken, 250), to) - 1)
    if #found == 0 then return end
    at = at + through(q, found, limit, function(i, what)
      if what == 'passed' then past.passed, past.gap = past.passed + 1, true
      else past.removed[#past.removed + 1] = found[i] end
    end)
  end
end

-- takelined takes from the line, in which voids can be more than one call goes past. What is passed
-- over waits where it would be passed by the line too.
local function takelined(q, limit, past)
  local first, length = firstof(q)
  local at, some, stay = 0, 0, {}
  local many = q.m.void > 0 and 250 or 1
  while at < length and taken < limit and not full and past.passed < PASSED and some < MOSTVOID do
    local from = at
    local found = entries(q, first, at, min(math.max(limit - taken, many), 250))
    if #found == 0 then break end
    at = at + through(q, found, limit, function(i, what)
      if what == 'void' then some = some + 1
      elseif what == 'passed' then
        past.passed, past.gap = past.passed + 1, true -- it goes to waiting, before what is taken there
        stay[#stay + 1], stay[#stay + 2] = first + from + i - 1, found[i]
      end
    end)
  end
  shift(q, first, length, at, some, stay)
end

-- takeplain takes from the head of what waits: what comes before the line, the line, and
-- the rest. It is what most claims do.
function takeplain(q, n)
  local limit, past = taken + n, {passed = 0, removed = {}}
  local high = call('ZCOUNT', q[SETS.w], '-inf', BEHIND)
  takeranked(q, 0, high, limit, past)
  takelined(q, limit, past)
  if not q.short then takeranked(q, high, call('ZCARD', q[SETS.w]), limit, past) end
  if past.gap then
    write(q, 'ZREM', SETS.w, past.removed)
  elseif #past.removed > 0 then
    write(q, 'ZREMRANGEBYRANK', SETS.w, {0, #past.removed - 1})
  end
  write(q, 'HDEL', TASKS, q.bad)
end

end

do
-- candidates gives what may be taken of a queue in which tasks just joined, or
-- where a suspect may be among them, in order.
local function candidates(q, n)
  local list = {}
  local first, length = firstof(q)
  local ids = length > 0 and entries(q, first, 0, n + 100) or {}
  for i, id in ipairs(ids) do
    if id ~= '' and not q.e[id] then list[#list + 1] = {first + i - 1, id, found(entry(q, id), 'l')} end
  end
  local upto = length > #ids and first + #ids -- where the line goes on
  local function add(score, id, e)
    if not upto or score < upto then list[#list + 1] = {score, id, e} end
  end
  for _, e in ipairs(q.fresh) do
    if e.st == 'w' or e.st == 'l' or e.st == 'z' and suspects then add(e.score, e.id, e) end
  end
  for _, st in ipairs({'w', 'z'}) do
    if st == 'w' or suspects then
      local v = call('ZRANGE', q[SETS[st]], 0, st == 'w' and n + 99 or 0, 'WITHSCORES')
      for i = 1, #v, 2 do
        add(tonumber(v[i + 1]), v[i], found(entry(q, v[i]), st))
      end
    end
  end
  table.sort(list, function(x, y) return x[1] < y[1] end)
  return list, ids, first, length
end

-- settleline has the line end before those of its first ids that were taken, or are void.
local function settleline(q, ids, first, length)
  local last = 0
  for i, id in ipairs(ids) do
    local e = id ~= '' and q.e[id]
    if i == last + 1 and not e or e and e.st ~= 'l' then last = i end
  end
  local some, stay = 0, {}
  for i = 1, last do
    local e = ids[i] ~= '' and q.e[ids[i]]
    if not e then some = some + 1
    elseif e.was == 'l' then
      e.popped = true
      if e.st == 'l' then
        stay[#stay + 1], stay[#stay + 2] = first + i - 1, e.id
      end
    end
  end
  shift(q, first, length, last, some, stay)
end

-- takemixed takes from candidates, one after the other.
function takemixed(q, n)
  local list, ids, first, length = candidates(q, n)
  local limit = taken + n
  local missing = {}
  for i = 1, min(#list, n + 100) do
    if list[i][3].rec == nil then missing[#missing + 1] = list[i][2] end
  end
  if #missing > 0 then
    local recs = lookup(q[TASKS], missing)
    for i, id in ipairs(missing) do q.e[id].rec = recs[i] end
  end
  for i = 1, min(#list, n + 100) do
    if taken >= limit or full then break end
    local e = list[i][3]
    if not e.rec or #e.rec < HEADER or byte(e.rec, 1) ~= 1 then
      setapart(q, e)
    elseif e.st == 'z' then
      if taken < starts and not suspect then suspect = give(q, e.id, e.rec, e) end
    elseif wanted(e.rec) then
      give(q, e.id, e.rec, e)
    else
      q.passed = true
    end
  end
  settleline(q, ids, first, length)
end
end

local take

do
-- beyond reports whether more waits in a queue than was taken, suspects apart.
local function beyond(q)
  local waiting = call('ZCARD', q[SETS.w]) + q.lined - #q.deadlines / 2
  for _, e in ipairs(q.touched) do
    if e.was == 'w' or e.was == 'l' then waiting = waiting - 1 end
    if e.st == 'w' or e.st == 'l' then waiting = waiting + 1 end
  end
  return waiting > 0
end

-- doubtful reports whether the same call would find a suspect.
local function doubtful(q)
  if not suspects or suspect or starts == 0 then return false end
  for _, e in ipairs(q.fresh) do
    if e.st == 'z' then return true end
  end
  return call('ZCARD', q[SETS.z]) > 0
end

function take(q, limit)
  q.lined = lined(q)
  if paused(q) then
    if q.m.paused > 0 and call('ZCARD', q[SETS.w]) + call('ZCARD', q[SETS.z]) + q.lined + #q.fresh > 0 then
      duesoon(q.m.paused)
    end
    return
  end
  if limit < 0 then return end
  if telling and call('ZCARD', q[SETS.z]) > 0 then suspicious = true end
  local n = min(limit == 0 and most or limit, most - taken)
  local before = taken
  if n > 0 and not full then
    local mixed = #q.fresh > 0
    if not mixed and suspects and not suspect and taken < starts then
      mixed = call('ZCARD', q[SETS.z]) > 0
    end
    if mixed then
      n = min(n, MIXED)
      takemixed(q, n)
    else
      takeplain(q, n)
    end
  end
  local left = full or q.short or taken - before >= n or q.passed and starts > 0
  remains = remains or left and beyond(q) or doubtful(q)
end

end

local function prepare(q)
  q.fresh, q.recs, q.ids, q.deadlines, q.pending, q.leases, q.bad, q.ticks, q.ended = {}, {}, {}, {}, {}, {}, {}, {}, {}
end

-- seal plans what was taken, as a group where it is worth one.
local function seal(q)
  local pending, n = q.pending, #q.pending / 2
  if n == 0 then return end
  if n < SINGLES then
    for i = 1, n do pending[2 * i] = ranked(pending[2 * i], i - 1) end
    write(q, 'ZADD', SETS.p, q.deadlines)
  else
    local groups = {}
    for i = 2, #pending, 2 do
      local v = groups[pending[i]]
      if not v then
        v = fence .. char(byte(pending[i], FENCE + 1) + GROUPED) .. ARGV[6]
        groups[pending[i]] = v
      end
      pending[i] = v
    end
    local ids = {}
    for i = 1, #pending, 2 do ids[#ids + 1] = pending[i] end
    write(q, 'ZADD', SETS.p, {deadline, ALARM .. fence})
    write(q, 'HSET', CLAIMS, {fence, table.concat(ids, ','), COUNT .. fence, n})
  end
  if call('HLEN', q[PENDING]) == 0 then pending[#pending + 1] = ''; pending[#pending + 1] = PAD end
  write(q, 'HSET', PENDING, pending)
end

-- answer gives the queue's part of the reply.
local function answer(q)
  local lengths, pieces = packed(q.recs)
  local last = #q.ended > 0 and '!' .. table.concat(q.ended) or q.forget and 'f' or ''
  return {q.info or '', table.concat(q.ids, ','), lengths, pieces, q.ticks, last}
end

-- again gives the tasks of the first outcome that are still claimed.
local function again(outcome)
  claimed = number(outcome, 2, 7)
  fence = ARGV[5] .. sub(outcome, 2, 8)
  local bar = find(outcome, '|', 9, true)
  taken = tonumber(sub(outcome, 10, bar - 1))
  suspect = byte(outcome, 9) == 49
  local n = 0
  for part in string.gmatch(sub(outcome, bar + 1), '([^;]*);') do
    n = n + 1
    local q = queues[n]
    local list, info = {}, {}
    for id in string.gmatch(part, '[^,]+') do list[#list + 1] = id end
    local leases = #list > 0 and lookup(q[PENDING], list) or {}
    local recs = #list > 0 and lookup(q[TASKS], list) or {}
    for i, id in ipairs(list) do
      local l, rec = leases[i], recs[i]
      if l and rec and sub(l, 1, FENCE) == fence then
        if #rec >= HEADER and has(byte(rec, 3), 4) then rec = rec .. (call('HGET', q[SIDE], 'b:' .. id) or '') end
        q.ids[#q.ids + 1], q.recs[#q.recs + 1] = id, rec
        info[#info + 1] = (has(byte(l, FENCE + 1), STARTED) and '1' or '0') .. pack7(expiry(q, id, l) or now)
      end
    end
    q.info = table.concat(info)
  end
end

for _, q in ipairs(queues) do prepare(q) end
local verdict, outcome = admit(home, ARGV[2], ARGV[3], tonumber(ARGV[4]))
if verdict == 'R' then
  if byte(outcome, 1) ~= 67 then return {'O', text(now)} end
  again(outcome)
  for _, q in ipairs(queues) do
    -- As the first try did, which an insert may have followed. A full Redis refuses it.
    if q.m.mark > 0 then redis.pcall('HSET', q[META], 'awaited', '1') end
    for _, st in ipairs({'s', 'r', 'u'}) do
      local at = first(q[SETS[st]])
      if at and at < NEVER then duesoon(at) end
    end
  end
elseif verdict == 'N' then
  for i, q in ipairs(queues) do
    if q.m.jumped > 0 then duesoon(q.m.jumped + JUMPWAIT) else
      for _, maintain in ipairs({recover, promote, tick, trim}) do
        share = math.max(floor(left / (total - i + 1)), 2)
        maintain(q)
      end
    end
  end
  mark = mark + 1
  claimed = mark
  fence = ARGV[5] .. pack7(claimed)
  deadline = text(now + lasts)
  local parts = {}
  for i, q in ipairs(queues) do
    take(q, tonumber(ARGV[12 + i]))
    if q.m.mark > 0 then set(q, 'awaited', 1) end -- and the mark moves on
    seal(q)
    q.forget = abandoned(q)
    parts[i] = table.concat(q.ids, ',') .. ';'
  end
  remember(home, ARGV[2], ARGV[3],
    'C' .. pack7(claimed) .. (suspect and '1' or '0') .. taken .. '|' .. table.concat(parts))
  local refused = commit(queues, false, mostdead)
  if refused then return refused end
else
  return {verdict, text(now)}
end

local cancels = false
for _, q in ipairs(queues) do
  if q.m.cancels > 0 then cancels = true end
end
local reply = {verdict, text(now), text(nextdue), (more and 'm' or '') .. (remains and 't' or '') .. (cancels and 'c' or '') .. (suspicious and 's' or ''),
  text(claimed), taken, suspect and 1 or 0}
for i, q in ipairs(queues) do reply[7 + i] = answer(q) end
return reply
