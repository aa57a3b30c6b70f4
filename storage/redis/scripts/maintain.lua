-- maintain: the first step of claim.lua in queues in which something may be due: it recovers tasks,
-- promotes, ticks, ends declined tasks and trims, in bounded batches.

local maintain, look, stray, placed

do
local BATCH = 100 -- how many tasks and other items one call maintains, in all of its queues together

local left = BATCH -- how many items are left of the batch
local share = 0 -- how many of them one kind of maintenance may use in one queue
local more = false -- whether maintenance is left over
local ticked = 0 -- the bytes of the cursors that tick has read, in all queues
local met = 0 -- how many items were found

-- spend notes that n items were found, in a list that was limited to share.
local function spend(n)
  left, met = left - n, met + n
  if n >= share then more = true end
end

-- first returns the score of the first member of a set, nil if the set is empty.
local function first(key)
  local v = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return v[1] and tonumber(v[2])
end

-- upto returns the members of a set whose scores are not after a moment, the earliest first, at most
-- share of them, and their scores.
local function upto(key, moment)
  local v = call('ZRANGEBYSCORE', key, '-inf', text(moment), 'WITHSCORES', 'LIMIT', 0, share)
  local members, scores = {}, {}
  for i = 1, #v, 2 do
    members[#members + 1], scores[#scores + 1] = v[i], tonumber(v[i + 1])
  end
  spend(#members)
  return members, scores
end

-- suspected reports whether a record belongs to a suspect.
local function suspected(rec)
  local c1, c2, l1, l2 = byte(rec, 23, 26)
  return c1 + c2 > 0 and c1 * 256 + c2 == l1 * 256 + l2 - 1
end

-- standing returns the state in which the task of a record waits, its priority and, if it has a partition,
-- its header; nil if the record is damaged or has a later format, and false if its place is not that of the
-- member. A record that has no part between its header and its names but a place is not parsed: the table that
-- head makes takes a third of a promotion.
local function standing(rec, member)
  if rec and #rec >= HEADER and byte(rec, 1) == FORMAT and byte(rec, 2) == 0 and byte(rec, 3) == HASPLACE then
    local kind, encoding, h1, h2, h3, p1, p2, p3, p4 = byte(rec, 27, 35)
    if #rec == HEADER + PLACE + kind + encoding + (h1 * 256 + h2) * 256 + h3 + ((p1 * 256 + p2) * 256 + p3) * 256 + p4 then
      if sub(rec, HEADER + 1, HEADER + PLACE) ~= sub(member, 1, PLACE) then return false end
      return suspected(rec) and 'z' or 'w', byte(rec, 18) - MAXPRIORITY
    end
  end
  local h = head(rec)
  if h and h.place ~= sub(member, 1, PLACE) then return false end
  if h then return waits(h), h.priority, h.partition ~= '' and h end
end

-- promote makes the tasks that are due wait, the earliest first. Claims take the tasks that wait by priority:
-- so it promotes more than a share of the batch, which it leaves as it is. In a record, since when its task
-- waits takes the bytes of its place; see joined in record.lua. That is the mark, because the clock may have
-- been set back: see inline in reindex.lua.
local function promote(q, queues)
  local before, ids, members, states, i, j, come = left, {}, {}, {}, 1, 1, pack7(mark)
  share = max(floor(MOSTPROMOTED / queues), 2)
  local scheduled, first = upto(q[SETS.s], now)
  local retry, second = upto(q[SETS.r], now)
  local n = #scheduled + #retry
  left = max(before - n, 0)
  for k = 1, n do -- both are sorted already, by the moment and then by the place
    local a, b = first[i], second[j]
    if a and not (b and (b < a or b == a and number(retry[j], 1, PLACE) < number(scheduled[i], 1, PLACE))) then
      members[k], states[k], i = scheduled[i], 's', i + 1
    else
      members[k], states[k], j = retry[j], 'r', j + 1
    end
    ids[k] = idof(members[k])
  end
  local recs, left, written, raised = lookup(q[TASKS], ids), {s = {}, r = {}}, {}, {}
  for k = 1, n do
    local id, rec, from = ids[k], recs[k], left[states[k]]
    local st, priority, h = standing(rec, members[k])
    if st and not h then rec = sub(rec, 1, HEADER) .. come .. sub(rec, HEADER + PLACE + 1) end
    if raised[id] then from[#from + 1] = members[k] -- damage had left it in both sets
    elseif st == false then -- see drop in entry.lua
      from[#from + 1], q.apart[#q.apart + 1], q.apart[#q.apart + 2] = members[k], members[k], ''
    elseif st == 'w' and priority == 0 and not h and not q.e[id] then -- as the entry below: it would take half of a promotion
      from[#from + 1], written[#written + 1], written[#written + 2], raised[id] = members[k], id, rec, true
      local _, at = spot(q, st, priority)
      q.joiners[#q.joiners + 1] = {at, id}
    else
      local e = found(entry(q, id), states[k], members[k])
      e.rec, e.written = rec, st ~= nil
      if h then
        local member = ring.place(q, h, id)
        rewrite(q, e, h)
        move(q, e, 'k', 0, member)
      elseif st then move(q, e, spot(q, st, priority))
      else setapart(q, e) end
    end
  end
  if #written > 0 then
    set(q, 'soon', 0) -- see moments in commit.lua
    q.used = true
  end
  write(q, 'ZREM', SETS.s, left.s)
  write(q, 'ZREM', SETS.r, left.r)
  write(q, 'HSET', TASKS, written)
end

-- tell notes a task that ends, for the reply: the letter of its state (k if it died of an unknown
-- kind), its id behind a length byte, and its kind likewise.
local function tell(q, e, h, st)
  local kind = sub(byname.of(h), 2)
  q.ended[#q.ended + 1] = st .. char(#e.id) .. e.id .. char(#kind) .. kind
end

local MOSTLOOKED = 2000 -- how many members of groups it reads

-- overdue returns up to share tasks whose leases expired and may be recovered, the last first: ids,
-- leases, and the ranks of tasks in groups. Tasks of a group beyond the share are left to the next call.
local function overdue(q)
  local upto = text(min(now, tonumber(ARGV[12 + 2 * ARGV[1]])))
  local found = call('ZREVRANGEBYSCORE', q[SETS.p], upto, '-inf', 'WITHSCORES', 'LIMIT', 0, share)
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
      local value = call('HGET', q[PENDING], member)
      if value and has(byte(value, FENCE + 1) or 0, GROUPED) then -- of a torn step: the group has a member too
        write(q, 'ZREM', SETS.p, {member})
      else
        local n = #ids + 1
        ids[n], leases[n] = member, value
      end
    end
  end
  spend(#ids)
  more = more or looked > MOSTLOOKED
  return ids, leases, ranks
end

-- expired returns the tasks whose leases expired, as entries, the last claimed first: recover puts one
-- after the other at the head, so that the first claimed task is the first to be claimed again.
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

-- recover ends leases that expired: their tasks wait again, are cancelled if that was asked, or die
-- at their crash limit.
local function recover(q)
  q.ended = {}
  for _, e in ipairs(expired(q)) do
    local h = e.h
    if not h or not valid(e.id) then setapart(q, e) else
      local flags = e.lease and byte(e.lease, FENCE + 1) or 0
      local started, asked = has(flags, STARTED), has(flags, ASKED)
      history.attempt(q, e, h, started and 'k' or 'e', '', '')
      history.why(q, e, h, '') -- removes the reason of an earlier snooze
      if e.lease then unlease(q, e, h) end
      if started then
        h.crashes = h.crashes + 1
        bump(q, 'crashed', 1)
      else
        h.noahead, q.news = true, true -- not every claim takes it
      end
      if asked then
        tell(q, e, h, 'x')
        finish(q, e, h, 'x', h.keep)
      elseif started and h.crashes >= h.crashlimit then
        tell(q, e, h, 'd')
        die(q, e, h, REASONCRASHES)
      else
        rejoin(q, e, h, 'head')
      end
    end
  end
end

-- recount counts the tasks in a line anew, as the line is before this step.
local function recount(q, line)
  local field, n = 'l:' .. line, {}
  local v = aside(q, field)
  for _, suspect in ipairs({false, true}) do n[suspect] = call('ZLEXCOUNT', q[LINES], byname.span(line, suspect)) end
  for member in pairs(q.strays) do
    if byname.line(member) == line then n[byname.suspect(member)] = max(n[byname.suspect(member)] - 1, 0) end
  end
  put(q, field, byname.tallied(byname.tally(v) and sub(v, 1, PLACE) or pack7(now), n[false], n[true]))
  byname.count(q, line, false, 0)
end

-- stray sets a member of the set of lines by name apart that stands for no task.
function stray(q, member)
  if q.strays[member] then return end
  q.strays[member] = true
  q.apart[#q.apart + 1], q.apart[#q.apart + 2] = member, ''
  write(q, 'ZREM', LINES, {member})
  if ring.is(member) and find(member, '%z') then ring.leave(q, ring.of(q, byname.line(member))) end
  if byname.valid(byname.line(member)) then recount(q, byname.line(member)) end
end

-- declinedid returns the id in a member of the set of lines by name, nil if the member is not well
-- formed.
local function declinedid(member)
  local line = byname.line(member)
  local id, priority = sub(member, #line + 2 * PLACE + 3), byte(member, #line + 2)
  local known = priority and priority < 2 * DOUBTFUL and priority % DOUBTFUL <= 2 * MAXPRIORITY
  return known and byname.valid(line) and valid(id) and id or nil
end

-- placed reports whether a record belongs to the task for which a member of the set of lines by name
-- stands: kind or partition, priority and place are the same.
function placed(rec, member, line)
  local at, g, priority, n = #line + 2, byte(rec, 3), byte(rec, 18), byte(rec, 27)
  local lead = 2 * MAXPRIORITY - priority + (suspected(rec) and DOUBTFUL or 0)
  if ring.is(line) then
    if lead < DOUBTFUL and g % 2 == 0 then lead = lead + PLAIN end
    return has(g, HASPLACE) and has(g, INPARTITION) and byte(member, at) == lead
      and byte(rec, HEADER + PLACE + 1) == #line - 1 and sub(rec, HEADER + PLACE + 2, HEADER + PLACE + #line) == sub(line, 2)
      and sub(rec, HEADER + 1, HEADER + PLACE) == sub(member, at + 1, at + PLACE)
  end
  return has(g, HASPLACE) and byte(member, at) == lead
    and n == #line - 1 and find(rec, sub(line, 2), HEADER + PLACE + 1, true)
    and sub(rec, HEADER + 1, HEADER + PLACE) == sub(member, at + 1, at + PLACE)
end

-- misplaced sets the scores of declined tasks to 0, and reports whether any were not 0: Redis sorts the
-- set by member, and can read lines from it, only if all scores are the same.
local function misplaced(q)
  local list = {}
  for _, range in ipairs({{'-inf', '(0'}, {'(0', '+inf'}}) do
    local v = call('ZRANGEBYSCORE', q[LINES], range[1], range[2], 'LIMIT', 0, share)
    for i = 1, #v do list[#list + 1], list[#list + 2] = 0, v[i] end
  end
  write(q, 'ZADD', LINES, list)
  spend(#list / 2)
  more = more or #list > 0
  return #list > 0
end

local MOSTLINES = 10 -- how many lines by name one step reads

-- eachpriority calls a function for each priority of a line, for suspects and for other tasks, with the
-- prefix of their members and the end of their range.
local function eachpriority(line, visit)
  for _, suspect in ipairs({false, true}) do
    for priority = MAXPRIORITY, -MAXPRIORITY, -1 do
      visit(byname.prefix(line, priority, suspect), '(' .. byname.prefix(line, priority - 1, suspect))
    end
  end
end

-- misfits returns up to most members of a line that no step has written: they do not begin with the name of
-- a line of a kind and a priority, or have a place that no step assigns.
local function misfits(q, line, most)
  local list = {}
  local function add(from, to)
    for _, m in ipairs(call('ZRANGEBYLEX', q[LINES], from, to, 'LIMIT', 0, most - #list)) do list[#list + 1] = m end
  end
  if not byname.valid(line) then
    add('[' .. line, '(' .. line .. '\1')
    return list
  end
  add('[' .. line, '[' .. line .. '\0')
  add('[' .. line .. '\0' .. char(2 * MAXPRIORITY + 1), (byname.span(line, true)))
  add('[' .. line .. '\0' .. char(DOUBTFUL + 2 * MAXPRIORITY + 1), '(' .. line .. '\1')
  eachpriority(line, function(lead, over) add('[' .. lead .. '\33', over) end)
  return list
end

-- behindthose returns the rank, between first and last, of the first declined task whose moment is not
-- in the future. The tasks before it were declined while the clock was ahead. at is the position of the
-- moment in a member.
local function behindthose(q, first, last, at)
  while first < last do
    local middle = floor((first + last) / 2)
    local m = call('ZRANGE', q[LINES], middle, middle)[1]
    if number(m, at, PLACE) > now then first = middle + 1 else last = middle end
  end
  return first
end

-- unknown adds to a list, up to a length of most, the members of the tasks that have waited in a
-- line for too long. They come first in each priority, except that tasks that were declined while the
-- clock was ahead may stand between them.
local function unknown(q, line, list, most)
  local function add(v, at)
    for i = 1, #v do
      local moment = number(v[i], at, PLACE)
      if moment + DECLINEDFOR > now then return moment > now and v[i] end
      list[#list + 1] = v[i]
    end
  end
  eachpriority(line, function(lead, over)
    local at = #lead + PLACE + 1
    local ahead = add(call('ZRANGEBYLEX', q[LINES], '[' .. lead, over, 'LIMIT', 0, most - #list), at)
    if not ahead then return end
    local first = call('ZLEXCOUNT', q[LINES], '-', '(' .. ahead)
    local last = first + call('ZLEXCOUNT', q[LINES], '[' .. ahead, over)
    first = behindthose(q, first + 1, last, at)
    add(call('ZRANGE', q[LINES], first, min(first + most - #list, last) - 1), at)
  end)
end

-- namedat returns when a claim last named the kind of a line. If the side hash does not hold that moment, or the
-- number of tasks in the line, it counts them anew and takes the kind as named now. It also takes the kind as named
-- now if the moment is in the future, from a clock that was ahead.
local function namedat(q, line)
  local field = 'l:' .. line
  if not byname.tally(aside(q, field)) then recount(q, line) end
  local v = aside(q, field)
  if number(v, 1, PLACE) > now then put(q, field, pack7(now) .. sub(v, PLACE + 1)) end
  return min(number(v, 1, PLACE), now)
end

-- forsakeone ends the declined task of a member, or sets the member apart if it stands for no task.
local function forsakeone(q, member)
  local id = declinedid(member)
  local rec = id and call('HGET', q[TASKS], id)
  local h = rec and head(rec)
  if not id or h and not placed(rec, member, byname.line(member)) then return stray(q, member) end
  local e = found(entry(q, id), 'k', member)
  e.rec = rec
  if h then
    tell(q, e, h, 'k')
    die(q, e, h, REASONKIND)
  else
    setapart(q, e)
  end
end

-- forsake ends declined tasks that waited too long while no claim named their kind. It reads MOSTLINES lines
-- a step, and goes on behind the last line of the step before, which the side hash has under 'l:'.
local function forsake(q)
  if q.m.looks > now + DECLINEDFOR then set(q, 'looks', now) end -- it comes from a clock that was ahead
  if q.m.looks == 0 or q.m.looks > now or paused(q.m, now) or misplaced(q) then return end
  local behind, ends = aside(q, 'l:') or nil, 0
  local lines, none, again = byname.lines(q[LINES], behind, MOSTLINES), not behind, now + floor(DECLINEDFOR / 24)
  for _, line in ipairs(lines) do
    local members = misfits(q, line, share - ends)
    local over = byname.valid(line) and namedat(q, line) + DECLINEDFOR or NEVER
    if over > now then again = min(again, over) else unknown(q, line, members, share - ends) end
    for _, member in ipairs(members) do forsakeone(q, member) end
    ends = ends + #members
    if ends >= share then break end
    behind = line
  end
  spend(ends)
  local over = #lines == 0 or #lines < MOSTLINES and behind == lines[#lines]
  put(q, 'l:', not over and behind or false)
  if over then set(q, 'looks', #lines == 0 and none and 0 or again) end
end

-- trim removes ended tasks at their expiry, dead tasks beyond DEADMAX, and unique keys at the end of their
-- windows.
local function trim(q)
  for st in pairs(ENDED) do
    local old = upto(q[SETS[st]], st == 'd' and now - DEADFOR or now)
    drop(q, st, old)
  end
  local excess = min(call('ZCARD', q[SETS.d]) - DEADMAX, share)
  if excess > 0 then
    spend(excess)
    evict(q, excess)
  end
  for _, key in ipairs((upto(q[WINDOWS], now))) do unique.own(q, key, false, false) end
end

-- tick hands out the cursors that are due, and hides them for TICKHIDE. If one does not fit in MAXBYTES with
-- the cursors before it, it and all others of the queues stay due, and unticked is set.
local function tick(q)
  q.ticks = {}
  local due = upto(q[SETS.u], now)
  local recs = lookup(q[TASKS], due)
  for n, id in ipairs(due) do
    local e = found(entry(q, id), 'u')
    e.rec = recs[n]
    local h = valid(id) and head(e.rec)
    if h then
      local size = #e.rec + (h.large and h.payload or 0)
      ticked = ticked + size
      if ticked > MAXBYTES and ticked > size then
        q.unticked = true
        break
      end
      move(q, e, 'u', now + TICKHIDE)
      q.ticks[#q.ticks + 1] = id
      q.ticks[#q.ticks + 1] = h.large and e.rec .. (aside(q, 'b:' .. id) or '') or e.rec
    else
      setapart(q, e)
    end
  end
end

-- rest arranges the partitions whose moment has come, or would have come if the clock had not been set back.
function ring.rest(q)
  if q.m.lines >= 0 then return end
  local over = call('ZRANGEBYSCORE', q[RING], '0', text(now), 'LIMIT', 0, MAXREST + 1)
  for i = 1, min(#over, MAXREST) do
    local p = ring.of(q, over[i])
    if p.score and p.score >= 0 then ring.awake(q, p) end -- else a task that was promoted has woken it
    q.news = q.news or p.score and p.score < 0
  end
  more = more or #over > MAXREST
  for _, p in ipairs(ring.overlong(q)) do
    ring.awake(q, p)
    q.news = true
  end
end

-- tend checks BATCH lines of partitions for damage that no claim meets: it arranges the partitions that the ring
-- lacks, or has as waiting for no moment without a pause, and sets members apart that no claim reads. It goes on
-- behind the last line of the step before, which the side hash has under 'l:p'. It reports whether it found damage,
-- and lines are left.
function ring.tend(q)
  local members, lines = call('ZCARD', q[RING]), call('ZCARD', q[LINES])
  if members > 0 and q.m.lines >= 0 then set(q, 'lines', -1) end -- lines was damaged
  local behind, found = aside(q, 'l:p') or 'o', false
  if lines == 0 and behind ~= 'o' then put(q, 'l:p', false) end
  if lines == 0 or misplaced(q) then return lines > 0 end
  local some = byname.lines(q[LINES], behind, BATCH, true)
  for _, line in ipairs(some) do
    local v = {}
    if ring.valid(line) then
      v = call('ZRANGEBYLEX', q[LINES], '[' .. line .. '\0\192', '(' .. line .. '\1', 'LIMIT', 0, BATCH)
      if call('ZSCORE', q[LINES], line) then v[#v + 1] = line end
    elseif ring.is(line) then
      v = call('ZRANGEBYLEX', q[LINES], '[' .. line, '(' .. line .. '\1', 'LIMIT', 0, BATCH)
    end
    for i = 1, #v do stray(q, v[i]) end
    local p = ring.valid(line) and ring.of(q, line)
    local lost = p and p.size > 0 and (not p.score or p.score >= NEVER and ring.kept(q, p).paused == 0)
    if lost then ring.arrange(q, p) end
    q.news, found = q.news or lost, found or lost or #v > 0
  end
  local left = #some == BATCH
  if left or behind ~= 'o' then put(q, 'l:p', left and some[#some] or false) end
  return found and left
end

-- maintain maintains the i-th of so many queues, and reports whether maintenance is left over there.
function maintain(q, i, queues)
  more = false
  local before = left
  for _, chore in ipairs({promote, ring.rest, recover, tick, forsake, trim}) do
    if chore == recover then left, before = before, left - before end
    share = max(floor(left / (queues - i + 1)), 2)
    local had, n, later = more, met, q.later or 0
    chore(q, queues)
    if met > n and met - n == (q.later or 0) - later then more = had end -- the next claim would meet the same tasks
    if chore == recover then left = max(left + before, 0) end
  end
  local at = q.m.reindex
  local damaged = q.m.mark > 0 and (at <= now or at > now + 10 * REINDEXEVERY) and ring.tend(q)
  local left = reindex(q) or more or damaged
  if damaged then set(q, 'reindex', now) end
  return left
end

-- look computes soon and due of a queue that was maintained. unfinished is true if maintenance is left over
-- there.
function look(q, unfinished)
  if q.m.mark == 0 then return end -- no queue yet
  local soon, due = q.m.touched > 0 and q.m.lines >= 0 and q.m.touched + QUEUELIFE or NEVER - 1, 0
  -- '-inf' if the maintenance is finished: a task may have fallen due since it read the clock.
  local from = unfinished and '(' .. text(now) or '-inf'
  for st in pairs(TIMED) do
    local v = call('ZRANGEBYSCORE', q[SETS[st]], from, NEVER - 1, 'WITHSCORES', 'LIMIT', 0, 1)
    if v[1] and (due == 0 or tonumber(v[2]) < due) then due = tonumber(v[2]) end
  end
  local pause = q.m.lines < 0 and ring.rests(q[RING], unfinished and from or '0')
  if pause and (due == 0 or pause < due) then due = pause end
  if due > 0 then soon = min(soon, due) end
  local n = q.m.looks == 0 and call('ZCARD', q[LINES]) or 0
  if n > 0 and n > ring.count(q[LINES]) then set(q, 'looks', now) end -- looks was damaged
  if q.m.looks > 0 then soon = min(soon, max(q.m.looks, now + PUTOFF)) end
  local function over(key, after)
    local at = first(q[key])
    if at then soon = min(soon, max(at + after, now + PUTOFF)) end
  end
  over(LEASES, 0)
  over(WINDOWS, 0)
  for st in pairs(ENDED) do over(SETS[st], st == 'd' and DEADFOR or 0) end
  soon = min(soon, max(q.m.reindex, now + PUTOFF))
  if unfinished or call('ZCARD', q[DEAD]) > DEADMAX or paused(q.m, now) or q.m.jumped > 0 then soon = 0 end
  set(q, 'due', due)
  set(q, 'soon', soon)
end
end

