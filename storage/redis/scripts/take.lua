-- take: the second part of claim.lua: which tasks it takes from a queue.

local take

do
local PASSED = 100 -- how many tasks of a queue a claim may pass over

-- candidates returns a table of the tasks that may be taken from a queue: list has them in its order, from is the
-- number of the first entry of the line, and known the place up to which the tasks are read that were not declined, NEVER
-- for all. A suspect that is wanted is among them only if it comes before the end of the entries that were read of
-- the line. If the claim names kinds with declined tasks, the table also has the streams and doubts of byname.first,
-- and the late candidates, behind the place horizon: unread declined tasks may come before them.
local function candidates(q, n)
  local list, from, length = {}, firstof(q)
  local function ranked(low, high)
    local v = call('ZRANGEBYSCORE', q[WAITING], low, high, 'WITHSCORES', 'LIMIT', 0, n)
    for i = 1, #v, 2 do list[#list + 1] = {st = 'w', id = v[i], at = tonumber(v[i + 1])} end
  end
  ranked('-inf', BEHIND)
  local ids = entries(q, from, 0, n)
  for i, id in ipairs(ids) do list[#list + 1] = {st = 'l', id = id, at = from + i - 1} end
  if #ids == length then ranked('(' .. BEHIND, '+inf') end
  local v = suspects and not suspect and starts > 0 and call('ZRANGE', q[SUSPECTS], 0, 0, 'WITHSCORES') or {}
  if v[1] then
    local z, i = {st = 'z', id = v[1], at = tonumber(v[2])}, 1
    while list[i] and list[i].at < z.at do i = i + 1 end
    if list[i] or #ids == length then table.insert(list, i, z) end
  end
  local known = #list >= n and list[#list].at or NEVER
  if #q.own == 0 then return {list = list, from = from, known = known} end
  local others, horizon, streams, doubts = byname.first(q, n, suspects and not suspect and starts > 0)
  byname.merge(list, 0, others)
  horizon = min(horizon, known)
  q.cut = q.cut or horizon < NEVER and 'shown' -- true if lines are left out, others the next time
  local late = {}
  while list[#list] and list[#list].at > horizon do
    late[#late + 1] = list[#list]
    list[#list] = nil
  end
  return {list = list, from = from, known = known, streams = streams, doubts = doubts, late = late, horizon = horizon}
end

-- give adds a task to the tasks taken, and reports whether the reply has room for it.
local function give(q, c, rec)
  local f, g = byte(rec, 2, 3)
  local size = has(g, 4) and number(rec, 32, 4) or #rec - HEADER
  if taken > 0 and bytes + size > MAXBYTES then
    full = true
    return false
  end
  bytes = bytes + size
  taken = taken + 1
  if has(g, 4) then call('HLEN', q[SIDE]) end -- its reader reads the payload; a wrong type fails here
  local n = #q.ids + 1
  q.ids[n], q.recs[n], q.flags[n] = c.id, rec, needs(f, g) + (taken <= starts and STARTED or 0)
  if c.st == 'z' or c.doubtful then suspect = true else q.out = q.out + 1 end
  return true
end

-- partition returns the partition of a candidate, nil if it has none.
function ring.partition(q, c, rec)
  if not c.member or q.m.lines >= 0 then return nil end
  if ring.is(c.line) then return q.parts[c.line] end
  local h = rec and has(byte(rec, 3) or 0, INPARTITION) and head(rec)
  return h and ring.of(q, 'p' .. h.partition)
end

-- full reports whether as many tasks of a partition are pending as its limit admits.
function ring.full(q, p)
  local each = ring.each(q, p)
  return each and each.most > 0 and ring.kept(q, p).running >= each.most
end

-- ahead reports whether a task of a partition may be claimed ahead.
function ring.ahead(q, p) return not (q.alone and ring.kept(q, p).own and p.own.bounds) end

-- admits reports whether a claim may take the next task of a partition as far as the partition decides. It lets the
-- partition rest until its rate admits the task, unless the claim takes nothing (looks is true), or the task stands
-- in another line (looks is 'elsewhere').
function ring.admits(q, p, rec, looks)
  local each = ring.each(q, p)
  if not each and not (p.score and p.score >= 0) then return true end
  ring.kept(q, p)
  if p.paused > 0 or p.rest > 0 then return false end
  if (looks == true and starts <= 0 or looks ~= true and taken >= starts) and not ring.ahead(q, p) then
    q.passed = q.passed or looks ~= true
    return false
  end
  if ring.full(q, p) then
    q.held = true
    return false
  end
  if not each or each.n == 0 then return true end
  local list, sum, ahead = ring.starts(q, p)
  local at = rate.next(list, sum, max(min(part.cost(rec), each.n), 1), each.n, each.per)
  if at == 0 then return true end
  q.rated = min(q.rated or at, at)
  if looks then return false end
  p.score, p.left = at, 0
  if ahead then ring.recount(q, p) end -- else they would count as made now until then
  return false
end

-- charge charges the start of a task that was handed out and admitted, to its partition, which may be nil.
function ring.charge(q, p, rec)
  local each = p and ring.each(q, p)
  if not each then return end
  ring.kept(q, p)
  if each.most > 0 then
    local n, key = #q.ids, sub(p.line, 2)
    p.running, p.changed = p.running + 1, true
    q.held = q.held or p.running >= each.most
    q.counted = q.counted or {}
    q.counted[n], q.flags[n] = key .. char(#key), q.flags[n] + COUNTED
  end
  local cost = each.n > 0 and min(part.cost(rec), each.n) or 0
  if cost > 0 then
    ring.recount(q, p)
    rate.add(p.list, rate.last(each.per), cost)
    p.sum = p.sum + cost
  end
  if p.size <= 0 then ring.arrange(q, p) end
end

-- fate decides whether a candidate is taken, and returns what happens to it: 'void', 'passed', 'apart', 'taken',
-- 'held' if its partition does not admit it, or 'full' if the reply has no room for it or the rate of the queue
-- does not admit it yet.
local function fate(q, c, rec)
  if not c.id then return 'void' end
  if later(rec) then -- left to processes that know the format; this caller learns of no work here
    q.later, q.out = (q.later or 0) + 1, q.out + 1
    return 'passed'
  end
  if not rec or #rec < HEADER or byte(rec, 1) ~= FORMAT or c.id == '' then -- '' is the field of PAD
    local e = found(entry(q, c.id), c.st, c.member)
    e.rec, e.popped = rec, true
    setapart(q, e)
    q.out = q.out + 1
    return 'apart'
  end
  if c.member and not placed(rec, c.member, c.line) then
    stray(q, c.member)
    q.out = q.out + (c.doubtful and 0 or 1)
    return 'apart'
  end
  local doubted = c.st == 'z' or c.doubtful
  if doubted and suspect then return 'passed' end -- the claim has taken a suspect
  if taken >= starts and (doubted or byte(rec, 3) % 2 == 1) then
    q.passed = true
    return 'passed'
  end
  local p = ring.partition(q, c, rec)
  if p and not ring.admits(q, p, rec, c.line ~= p.line and 'elsewhere') then return 'held' end
  if not limits.admits(q, rec, doubted) or not give(q, c, rec) then return 'full' end
  limits.charge(q)
  ring.charge(q, p, rec)
  return 'taken'
end

local NOCLASS = '\0' .. char(PLAIN + DOUBTFUL) -- the end of the members that can stand in the line of a partition

local own = {} -- the tasks that have no partition, and the declined ones

-- own.begin begins to take up to n of the tasks of a queue that have no partition, and of the declined ones.
function own.begin(q, n)
  local o
  if ring.resting(q) then o = {list = {}, from = firstof(q), known = NEVER}
  else o = candidates(q, n + (q.m.void > 0 and MOSTVOID or PASSED)) end
  o.i, o.popped, o.void, o.stay, o.gone = 0, 0, 0, {}, {w = {}, z = {}, k = {}}
  o.some = min(max(limits.reads(q, n), 10), 250)
  return o
end

-- own.skips reports whether a candidate is a suspect of a claim that has taken one.
function own.skips(c) return suspect and (c.st == 'z' or c.doubtful) end

-- own.record returns the record of the i-th candidate. It reads some records together.
function own.record(q, o, i)
  if not o.recs or i < o.first or i >= o.first + o.some then
    local ids = {}
    for j = i, min(i + o.some - 1, #o.list) do ids[j - i + 1] = not own.skips(o.list[j]) and o.list[j].id or '' end
    o.recs, o.first = lookup(q[TASKS], ids), i
  end
  return o.recs[i - o.first + 1]
end

-- own.readon reads on in the lines of kinds if the claim has passed over all candidates, some of them because of
-- their partitions. Then the others that were read come too, but none behind tasks that were not declined and not read.
-- It reports whether there are more candidates.
function own.readon(q, o)
  local late, before = q.spared and o.late, #o.list
  if not late then return false end
  o.late, o.recs = nil, nil
  local function add(s)
    local more = byname.readon(q, s, #o.streams)
    for i = 1, #more do late[#late + 1] = more[i] end
  end
  for _, s in ipairs(o.streams) do
    add(s)
    local d = not suspect and o.doubts[s.line.name]
    if d then add(d) end
  end
  byname.sort(late)
  while late[1] and late[#late].at > o.known do late[#late] = nil end
  byname.merge(o.list, before, late)
  return #o.list > before
end

-- own.met notes that the claim has met a declined task. Behind the first suspects of its line it reads on at once. Those
-- behind the horizon come late.
function own.met(q, o, c, what)
  local s = (c.doubtful and o.doubts or o.streams)[c.line]
  s.left = s.left - 1
  if not c.doubtful or s.left > 0 or what ~= 'held' then return end
  local more = byname.readon(q, s, #o.streams)
  local last = o.late and o.horizon or o.known
  while more[1] and more[#more].at > last do
    if o.late then o.late[#o.late + 1] = more[#more] end
    more[#more] = nil
  end
  if #more == 0 then return end
  byname.merge(o.list, o.i, more)
  o.recs = nil
end

-- own.advance takes the next of these tasks, and reports whether it took one. A task of the line that it passes over
-- moves to waiting, before the line, with its number as its score.
function own.advance(q, o)
  while o.i < #o.list or own.readon(q, o) do
    local c = o.list[o.i + 1]
    local what = own.skips(c) and 'passed' or fate(q, c, own.record(q, o, o.i + 1))
    if what == 'full' then return false end
    q.spared = q.spared or what == 'held'
    o.i = o.i + 1
    o.took = o.took or what == 'taken'
    if c.member then own.met(q, o, c, what) end
    if c.st == 'l' then
      o.popped = o.popped + 1
      if what == 'void' then o.void = o.void + 1 end
      if what == 'passed' then o.stay[#o.stay + 1], o.stay[#o.stay + 2] = c.at, c.id end
    elseif what == 'taken' then
      local list = o.gone[c.st]
      list[#list + 1] = c.member or c.id
      if c.member then byname.count(q, c.line, c.doubtful, -1) end
    end
    if what == 'taken' then return true end
  end
  return false
end

-- own.finish plans the removal of the tasks that were taken.
function own.finish(q, o)
  q.short = o.void > 0 and o.known < NEVER
  if q.later and not o.took and q.cut == 'shown' then q.cut = false end -- another claim would meet the same tasks
  write(q, 'ZREM', WAITING, o.gone.w)
  write(q, 'ZREM', SUSPECTS, o.gone.z)
  write(q, 'ZREM', LINES, o.gone.k)
  local none
  if o.popped > 0 then none = pop(q, o.from, o.popped, o.void, o.stay) else none = unvoid(q, o.from) end
  if none and (q.m.void ~= 0 or q.guessed) then
    set(q, 'void', 0)
    q.guessed = nil
  end
end

-- own.pick takes up to n tasks of a queue without partitions.
function own.pick(q, n)
  local limit, o = taken + n, own.begin(q, n)
  while taken < limit and own.advance(q, o) do end
  own.finish(q, o)
  q.others = o
  if limits.rated(q) then own.remain(q, o) end
end

-- ring.begin reads the first tasks of a partition, which keeps them by their class, and parses each when its turn
-- comes. If the first one is plain, the partition has no others than plain ones, and upto is PLAIN. Else the classes
-- from upto on are still to be read.
function ring.begin(q, t)
  local from, at = ring.whole(t.line), #t.line + 2
  local list = call('ZRANGEBYLEX', q[LINES], from, '(' .. t.line .. NOCLASS, 'LIMIT', 0, q.page)
  local n = #list
  local more = n == q.page
  if t.least and t.net == 0 then t.size, t.least = n, more end
  if n == 0 then t.size, t.least, t.score = 0, nil, nil end -- the ring is damaged
  if n == 0 or (byte(list[1], at) or 0) >= PLAIN then
    t[PLAIN], t.upto = {list = list, i = 1, more = more, c = nil}, PLAIN
    return
  end
  local last = 0
  for i = 1, n do
    local class = byte(list[i], at) or 0
    last = class - class % DOUBTFUL
    local l = t[last]
    if not l then
      l = {list = {}, i = 1, more = false, c = nil}
      t[last] = l
    end
    l.list[#l.list + 1] = list[i]
  end
  t[last].more, t.upto = more, more and last + 1 or NEVER
end

-- ring.first returns the first task of a class of a partition, nil for none.
function ring.first(q, t, class)
  local l = t[class]
  if not l and class >= t.upto then
    l = {list = {t.line .. '\0' .. char(class)}, i = 2, more = true, c = nil}
    t[class] = l
  end
  while l and not l.c do
    local list = l.list
    if list[l.i] then
      l.c = byname.parse(q, list[l.i], t.line)
      if not l.c then l.i = l.i + 1 end
    elseif l.more then
      local n, _, to = min(2 * #list, 100), ring.span(t.line, class)
      list = call('ZRANGEBYLEX', q[LINES], '(' .. list[#list], to, 'LIMIT', 0, n)
      l.list, l.i, l.more = list, 1, #list == n
    else
      return nil
    end
  end
  return l and l.c
end

-- ring.next returns the first task of a partition that the claim may take, nil for none. starts and wanted
-- decide whether that may be a task that is claimed only to start at once, or a suspect.
function ring.next(q, t, starts, wanted)
  if not t.upto then ring.begin(q, t) end
  local next = ring.first(q, t, PLAIN)
  if t.upto == PLAIN then return next end
  local other = starts and ring.first(q, t, 0)
  if other and not (next and next.at < other.at) then next = other end
  other = wanted and ring.first(q, t, DOUBTFUL)
  if other and not (next and next.at < other.at) then next = other end
  return next
end

-- ring.fetch reads the record of the next task of the i-th turn, and together with it those of up to n turns.
function ring.fetch(q, g, i, n)
  local list, ids, starts = {}, {}, taken < starts
  for j = i, min(i + n - 1, #g) do
    local t = g[j]
    local c = t and t.line and not ring.full(q, t) and ring.next(q, t, starts, starts and suspects and not suspect)
    if c and c.rec == nil then list[#list + 1], ids[#ids + 1] = c, c.id end
  end
  local recs = lookup(q[TASKS], ids)
  for j = 1, #list do list[j].rec = recs[j] or false end
end

-- ring.advance takes the next task of the i-th turn, that of a partition, and reports whether it took one. Up to n
-- turns may follow. It reads no task of a partition that is full, because there may be many of these.
function ring.advance(q, g, i, n)
  local t = g[i]
  if ring.full(q, t) then
    q.held = true
    return false
  end
  if taken >= starts and not ring.ahead(q, t) then return false end
  while true do
    local starts = taken < starts
    local c = ring.next(q, t, starts, starts and suspects and not suspect)
    if not c then return false end
    if c.rec == nil then ring.fetch(q, g, i, min(n, 100)) end
    local what = fate(q, c, c.rec)
    if what == 'full' or what == 'held' then return false end
    local l = t[c.class]
    l.i, l.c = l.i + 1, nil
    if what == 'taken' then
      q.keyed[#q.keyed + 1] = c.member
      ring.leave(q, t)
      return true
    end
  end
end

-- ring.readon reads further turns of the ring of a queue, up to q.turns partitions, and reports whether there
-- are any.
function ring.readon(q, g, most)
  local before, n = #g, min(max(most, g.read) + 1, q.turns - g.read)
  if not g.whole and n > 0 then
    local v = call('ZRANGEBYSCORE', q[RING], '-inf', '(0', 'LIMIT', g.read, n)
    g.whole = #v < n
    if q.each or q.alone then ring.prefetch(q, v) end
    for i = 1, #v do
      if not g.own and g.read + i > g.before then
        g.own = true
        g[#g + 1] = {}
      end
      g[#g + 1] = ring.inturn(q, v[i])
    end
    g.read = g.read + #v
  end
  if not g.own and (g.whole or g.read >= q.turns) then
    g.own = true
    g[#g + 1] = {}
  end
  if g.whole and g.served then
    for i = 1, #g.served do g[#g + 1] = g.served[i] end
    g.served = nil
  end
  return #g > before
end

-- ring.served notes that the claim took a task of the i-th turn, and reports whether the turn is over. Then the
-- partition moves to the end of the ring. Else so many tasks are left of the turn, for the next claim too.
function ring.served(q, g, i)
  local t, list = g[i], g.whole and g or g.served
  local each = t.line and ring.each(q, t)
  if each and each.weight > 1 and t.size > 0 then
    local left = ring.kept(q, t).left
    t.left = (left > 0 and min(left, each.weight) or each.weight) - 1
    if t.left > 0 then return false end
  end
  g[i] = false
  if not t.line then
    bump(q, 'turn', 1)
    set(q, 'own', q.m.turn)
  elseif t.size > 0 then ring.ready(q, t) end
  if not t.line or t.size > 0 then list[#list + 1] = t end
  return true
end

-- own.remain reports whether another claim like this one would find a task among those without a partition. It asks
-- the rate of the queue for the first one.
function own.remain(q, o)
  if ring.resting(q) then return false end
  if full and not limits.rated(q) then return o.i < #o.list end
  for i = o.i + 1, min(#o.list, o.i + PASSED) do
    local c = o.list[i]
    local rec, doubted = not own.skips(c) and own.record(q, o, i), c.st == 'z' or c.doubtful
    if c.id and rec and not later(rec) and (starts > 0 or not doubted and (byte(rec, 3) or 0) % 2 == 0) then
      local p = ring.partition(q, c, rec)
      if not p or ring.admits(q, p, rec, true) then return limits.admits(q, rec, doubted) end
    end
  end
  local unseen = o.i + PASSED < #o.list and (o.took or taken > 0 and not q.spared) -- the claim may have ended before
  return q.passed and starts > 0 or q.short or unseen
    or q.cut and (o.took or not q.spared) and (starts > 0 or not q.passed)
end

-- ring.remain reports whether another claim like this one would find a task of the i-th turn, that of a partition. It
-- asks the rate of the queue for it.
function ring.remain(q, g, i)
  local t = g[i]
  if ring.full(q, t) then
    q.held = true
    return false
  end
  if starts <= 0 and not ring.ahead(q, t) then return false end
  local c = ring.next(q, t, starts > 0, starts > 0 and suspects and not suspect)
  local each = ring.each(q, t)
  local rated = limits.rated(q) or each and each.n > 0
  if c and c.rec == nil and rated then c.rec = call('HGET', q[TASKS], c.id) end
  return c and (not c.rec or ring.admits(q, t, c.rec, true) and limits.admits(q, c.rec, c.doubtful))
end

-- ring.remains reports whether another claim like this one would find a task in the turns of a queue.
function ring.remains(q, g)
  local rated = limits.rated(q) or most == 0 -- then the order of the turns shows which partitions were read
  local left, i = not (rated or limits.bounds(q, starts)) and own.remain(q, q.others), 1
  while not left and not limits.bounds(q, starts) and (g[i] ~= nil or ring.readon(q, g, g.most)) do
    local t = g[i]
    if t and t.line then left = ring.remain(q, g, i) elseif t and rated then left = own.remain(q, q.others) end
    i = i + 1
  end
  return left or g.took and not g.whole
end

-- limits.forgo checks anew a queue whose rate does not admit a suspect that came next, if the claim has taken another
-- suspect meanwhile: then the next claim like it passes over this one.
function limits.forgo(q)
  local l, left = q.limit, nil
  if not suspect or not l or not l.wants or not l.doubted then return end
  l.wants = nil
  if q.looked then left = ring.remains(q, q.looked) else left = own.remain(q, q.others) or q.short end
  q.bounded = limits.bounds(q, starts)
  remains = remains or left and not q.bounded
end

-- ring.take takes up to n tasks of a queue with partitions, in their turns, and reports whether another claim
-- like this one would find a task.
function ring.take(q, n)
  n = max(min(n, MOSTKEYED - ring.took), 0)
  local limit, before, passed, o = taken + n, taken, {}, nil
  -- Scores of 16 digits are slow to read: so a count returns how many partitions come before the tasks without
  -- one.
  local g = {read = 0, served = {}, before = call('ZCOUNT', q[RING], '-inf', text(q.m.own - NEVER))}
  q.page = min(floor(n / call('ZCARD', q[RING])) + 2, 100) -- enough to see whether a partition empties
  q.keyed, q.turns = {}, min(MAXTURNS, max(2 * MAXTURNS - ring.looked, 100))
  local i = 1
  while taken < limit and not full and not limits.spent(q) and (g[i] or ring.readon(q, g, n)) do
    local t, some = g[i], nil
    if t.line then some = ring.advance(q, g, i, limits.reads(q, limit - taken)) else
      o = o or own.begin(q, n)
      some = own.advance(q, o)
    end
    if not some and t.line and not full and not limits.spent(q) then passed[#passed + 1] = t end
    if not some or ring.served(q, g, i) then i = i + 1 end
  end
  for j = 1, not g.whole and g.read >= q.turns and #passed or 0 do -- the next claim reads others
    if (passed[j].score or 0) < 0 then ring.ready(q, passed[j]) end -- no score if damage has emptied it
  end
  o = o or own.begin(q, n)
  own.finish(q, o)
  write(q, 'ZREM', LINES, q.keyed)
  q.others, q.looked, g.most, g.took = o, g, n, taken > before
  local left = ring.remains(q, g)
  i = 1
  while telling and not suspicious and (g[i] ~= nil or ring.readon(q, g, n)) do
    local t = g[i] and g[i].line and g[i]
    if t and not t.upto then ring.begin(q, t) end
    suspicious = t and t.upto ~= PLAIN and ring.first(q, t, DOUBTFUL)
    i = i + 1
  end
  ring.looked, ring.took = ring.looked + g.read, ring.took + taken - before
  full = full or left and ring.took >= MOSTKEYED -- the next queues wait until this one is empty
  return left
end

-- own.doubtful reports whether another claim like this one would find a suspect.
function own.doubtful(q)
  return suspects and not suspect and starts > 0 and not q.later and not ring.resting(q)
    and call('ZCARD', q[SUSPECTS]) + (q.spared and 0 or q.doubted) > 0
end

-- take takes tasks from a queue, and reports whether others wait there that its limit admits.
function take(q, limit)
  q.ids, q.recs, q.flags, q.out = {}, {}, {}, 0
  local waiting, doubted = call('ZCARD', q[WAITING]) + lined(q) + q.declined, call('ZCARD', q[SUSPECTS]) + q.doubted
  limits.look(q, limit >= 0)
  if paused(q.m, q.m.jumped > 0 and 0 or now) then return false end -- no pause ends while timed work waits (jump.lua)
  if q.m.paused > 0 then set(q, 'paused', 0) end -- its time is over
  if limit < 0 then return true end
  local n, before = min(limit == 0 and most or limit, most - taken), taken
  if q.limit then n = min(n, max(min(starts - taken, limits.free(q)), limits.ahead(q))) end
  local keyed, left = q.m.lines < 0 and call('ZCARD', q[RING]) > 0, false
  if ring.resting(q) and not keyed then return false end
  if keyed then left = ring.take(q, n)
  elseif n > 0 and not full or starts > 0 and limits.rated(q) then own.pick(q, full and 0 or max(n, 0)) end
  limits.start(q)
  if limits.bounds(q, starts) then return false end
  suspicious = suspicious or telling and doubted > 0 and not ring.resting(q)
  local others = keyed or waiting > q.out
  left = left or not keyed and (full or q.short or q.cut and (starts > 0 or not q.passed) or taken - before >= n
    or q.passed and starts > 0)
  q.remains = left and others
  remains = remains or q.remains or own.doubtful(q)
  return others
end

end

