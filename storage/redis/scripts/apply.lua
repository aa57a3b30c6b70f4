-- apply: carries out the Txs of one or several calls, each Tx whole or not at all.
--
-- KEYS  the keys of each named queue (keys.go), queue after queue
-- ARGV  1 queues, 2 "1" if a full Redis has to refuse the call, "i" likewise if all Txs
--       are in runs of inserts, "c" if all are in runs of completions, else "0", 3 calls,
--       then the names of the queues, then each call: lane field, seq, opened, the queue whose
--       lanes have it (its home), Txs; each Tx: operations; each operation: its letter, its
--       queue, the id and the arguments that the functions in check.lua and step.lua read. WIDTH has the
--       number of arguments of each operation. Txs of one plain operation can come as a run, which has in the
--       place of a number of operations either "c", queue, fence, number of completions, width of their ids
--       (0 if they differ) and the ids with commas between, or "i", queue, first 3 bytes of each record,
--       number of inserts, and of each insert the id and the record behind its 17th byte. Plain inserts of
--       one Tx can come as a run too, with the letter "I".
-- Returns  now and, each behind a space, the numbers of the queues that have to be on the list of
--       queues: this step made them, or an earlier try may have; then for each call the verdict of admit and the outcome: "A", the mark before
--       its first Tx (7 bytes), then each Tx. The n-th Tx or run has the version that mark + n.
--       If the clock was set back it is "B", the mark, and now (7 bytes), the moment of the inserts. A Tx that
--       happened is K and, for each insert, change and settle, the letter of the state to which it led; or V, letter,
--       version if the version is not that of the Tx; or E, letter, version, length and id of an existing task. A
--       run that happened can be * and the letter, once for all of its Txs. A Tx that was refused is R, the number of
--       obstacles (2 bytes), and the obstacles: letter, number of the operation (2 bytes), and data that depend on
--       the letter (see reply.go).

-- behind returns the position behind the operation, or the run of inserts of a Tx, at a, and how many
-- operations it is.
local function behind(a)
  local width = WIDTH[ARGV[a]]
  if width then return a + width, 1 end
  return a + 4 + 2 * ARGV[a + 3], tonumber(ARGV[a + 3])
end

-- after returns the position behind the Tx or run at a, and how many Txs it is.
local function after(a)
  local left = ARGV[a]
  if left == 'c' then return a + 6, tonumber(ARGV[a + 3]) end
  if left == 'i' then return a + 4 + 2 * ARGV[a + 3], tonumber(ARGV[a + 3]) end
  a, left = a + 1, tonumber(left)
  while left > 0 do
    local n
    a, n = behind(a)
    left = left - n
  end
  return a, 1
end

local function want(q, list, v)
  local l = q[list]
  if not l then l = {}; q[list] = l end
  l[#l + 1] = v
end

-- note notes which leases, records and histories the operations of the Tx at a need.
local function note(a)
  local left = tonumber(ARGV[a])
  if not left then return end
  a = a + 1
  while left > 0 do
    local o, n = ARGV[a], nil
    local settles = SETTLES[o]
    if settles then want(Q[ARGV[a + 1]], 'settled', ARGV[a + 2]) end
    if settles and o ~= 'c' or o == 'i' or o == 'k' then want(Q[ARGV[a + 1]], 'read', ARGV[a + 2]) end
    if settles and settles ~= 'c' and ARGV[a + 8] ~= '' then want(Q[ARGV[a + 1]], 'logged', 'h:' .. ARGV[a + 2]) end
    a, n = behind(a)
    left = left - n
  end
end

-- prefetch reads the data that most operations need, with few commands for each queue.
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
    if q.read then
      local recs = lookup(q[TASKS], q.read)
      for i, id in ipairs(q.read) do entry(q, id).rec = recs[i] end
    end
    if q.logged then
      local logs = lookup(q[SIDE], q.logged)
      for i, field in ipairs(q.logged) do q.side[field] = logs[i] end
    end
  end
end

local carryout

do -- a block: see commit.lua

-- with calls a function for an operation of a run; o has the arguments of the operation.
local function with(o, f)
  local argv = ARGV
  ARGV = o
  local result = f(1)
  ARGV = argv
  return result
end

-- single carries out one operation of a run as a Tx of its own; o has its arguments.
local function single(o)
  local n = #out + 1
  obstacles, decided, op = nil, nil, 1
  with(o, CHECKS[o[1]] or checksettle)
  if obstacles then out[n] = 'R' .. pack2(1) .. obstacles[1]
  elseif decided then out[n] = 'K' .. existing(unpack(decided[1]))
  else out[n] = 'K' .. with(o, STEPS[o[1]]) end
end

-- completions carries out a run of completions. A task needs no entry if its lease shows that its end takes
-- no more than its removal.
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
  if #ids > 0 then bump(q, 'completed', #ids) end -- a stale completion makes no queue
  q.used = q.used or #ids > 0
  if #ids > #alarms then leave(q, fence, #ids - #alarms) end
  write(q, 'HDEL', TASKS, ids)
  write(q, 'HDEL', PENDING, ids)
  write(q, 'ZREM', SETS.p, alarms)
end

-- recordsof returns the records that the tasks of a run of inserts have, false for each that is not there.
local function recordsof(q, a)
  local ids = {}
  for i = 1, tonumber(ARGV[a + 3]) do ids[i] = ARGV[a + 2 + 2 * i] end
  return lookup(q[TASKS], ids)
end

-- lone returns the arguments of the i-th insert of a run as those of an operation of its own. rec is the
-- record that its task has.
local function lone(q, a, i, rec)
  local id = ARGV[a + 2 + 2 * i]
  local e = entry(q, id)
  if e.rec == nil then e.rec = rec end
  return {'i', ARGV[a + 1], id, ARGV[a + 2] .. string.rep(char(0), 14) .. ARGV[a + 3 + 2 * i], '', ''}
end

-- checkinsertions checks a run of plain inserts of a Tx. An insert whose task has no entry afterwards may
-- happen.
local function checkinsertions(a)
  local q = Q[ARGV[a + 1]]
  local recs, known, done, new = recordsof(q, a), q.e, q.done or {}, q.new or {}
  for i = 1, #recs do
    local id = ARGV[a + 2 + 2 * i]
    if recs[i] or known[id] or done[id] or new[id] then with(lone(q, a, i, recs[i]), CHECKS.i) end
    op = op + 1
  end
end

-- insertions carries out a run of plain inserts: they are due now, have no unique key and no large
-- payload, and are no cursors. They are a part of a Tx that has passed its checks, or each a Tx of its own.
local function insertions(a, part)
  local q, lead, n = Q[ARGV[a + 1]], ARGV[a + 2], tonumber(ARGV[a + 3])
  local recs = part and {} or recordsof(q, a)
  local stamped = lead .. pack7(mark) .. pack7(now)
  local known, done, new, joiners, said, k = q.e, q.done or {}, q.new or {}, q.joiners, #out, 0
  q.new = new
  local add, set, told = {}, {}, part and 'w' or 'Kw'
  for i = 1, n do
    local id, rest = ARGV[a + 2 + 2 * i], ARGV[a + 3 + 2 * i]
    if not recs[i] and not known[id] and not new[id] and not done[id] then
      local rec = stamped .. rest
      new[id] = rec
      local st, at = spot(q, 'w', byte(rest, 1) - MAXPRIORITY)
      if st == 'l' then joiners[#joiners + 1] = {at, id} else
        add[#add + 1], add[#add + 2] = at, id
      end
      set[k + 1], set[k + 2] = id, rec
      k = k + 2
      out[said + i] = told
    elseif not part then
      single(lone(q, a, i, recs[i]))
    elseif decided and decided[op + i - 1] then
      out[said + i] = ''
    else
      out[said + i] = with(lone(q, a, i), STEPS.i)
    end
  end
  bump(q, 'enqueued', k / 2)
  if k > 0 then q.work, q.used = true, true end
  write(q, 'ZADD', SETS.w, add)
  write(q, 'HSET', TASKS, set)
end

-- transact carries out one Tx whose operations begin at a, or adds its obstacles to the outcome. It
-- returns the position behind the Tx.
local function transact(a, ops)
  step = step + 1
  mark = mark + 1
  obstacles, decided, op = nil, nil, 1
  local at, said = a, #out + 1
  while op <= ops do
    local o = ARGV[at]
    if o == 'I' then checkinsertions(at) else
      local check = CHECKS[o] or checksettle
      check(at)
      op = op + 1
    end
    at = behind(at)
  end
  if obstacles then
    out[said] = 'R' .. pack2(#obstacles) .. table.concat(obstacles)
    return at
  end
  out[said] = 'K'
  at, op = a, 1
  while op <= ops do
    local o, to, n = ARGV[at], behind(at)
    if o == 'I' then insertions(at, true) else
      out[said + op] = not (decided and decided[op]) and STEPS[o](at) or ''
    end
    at, op = to, op + n
  end
  -- Existing tasks come last, in the state in which this Tx leaves them.
  for i, task in pairs(decided or {}) do out[said + i] = existing(unpack(task)) end
  return at
end

-- carryout carries out the Txs of one call, which begin at a, and returns the position behind them.
function carryout(a, txs)
  out = {'A', pack7(mark)}
  if mark - now >= JUMPBACK then out = {'B', pack7(mark), pack7(now)} end
  while txs > 0 do
    local n = 1
    if ARGV[a] == 'c' or ARGV[a] == 'i' then
      step = step + 1
      mark = mark + 1
      if ARGV[a] == 'c' then completions(a) else insertions(a) end
      a, n = after(a)
    else
      a = transact(a + 1, tonumber(ARGV[a]))
    end
    txs = txs - n
  end
  return a
end

end

local function skip(a, txs)
  while txs > 0 do
    local n
    a, n = after(a)
    txs = txs - n
  end
  return a
end

local made -- by number, the queues that did not exist before this step
for i, q in ipairs(queues) do
  if q.m.mark == 0 then
    made = made or {}
    made[i] = true
  end
end
prefetch(4 + #queues, tonumber(ARGV[3]))
local reply, repeated = {0}, false
local a = 4 + #queues
for _ = 1, tonumber(ARGV[3]) do
  local field, seq, home, txs = ARGV[a], ARGV[a + 1], Q[ARGV[a + 3]], tonumber(ARGV[a + 4])
  local verdict, outcome = admit(home, field, seq, ARGV[a + 2], '')
  if verdict == 'N' then
    a = carryout(a + 5, txs)
    outcome = table.concat(out)
    remember(home, field, seq, outcome)
  else
    a = skip(a + 5, txs)
    repeated = repeated or verdict == 'R'
  end
  reply[#reply + 1] = verdict .. (outcome or '')
end
local refused = commit(queues, ARGV[2] == '1' or ARGV[2] == 'i')
if refused then return refused end
reply[1] = text(now)
for i = 1, (made or repeated) and #queues or 0 do
  if queues[i].m.mark > 0 and (repeated or made[i]) then reply[1] = reply[1] .. ' ' .. i end
end
return reply
