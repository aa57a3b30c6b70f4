-- claim: maintains the named queues, then takes tasks from them under a lease.
--
-- KEYS  the keys of each queue (keys.go), queue after queue; the lanes of the first queue of the whole call,
--       in the place of those of the first one here, have the call
-- ARGV  1 queues, 2 lane field, 3 seq, 4 opened, 5 token, 6 runner, 7 most tasks,
--       8 how many start, -1 if the caller wants none to start, 9 "1" if a suspect is wanted, "t" if the reply
--       has to show whether one waits, else "0", 10 lease (µs), 11... for each queue the most tasks of it (0 for no
--       limit of its own, negative to take none); then the kinds with commas between, "" for all; then for each queue
--       the field lines of its meta hash at which a claim of these kinds found none of their lines there (planlines
--       in commit.lua), "" for none; then the moment up to which leases that ended are recovered, the place of each
--       queue among those of the whole call with a comma behind it, "" if none was left out, and the process that
--       claims, as a member of idle
-- Returns  a text, or a list that begins with it: verdict, the clock, the next due moment or 0 and
--       the version of all tasks (16 digits each), how many were taken (4 digits); "m" if
--       maintenance is left over, "t" if tasks are left that could be taken, "c" for cancels, "s"
--       if suspects wait, "z" if a suspect was taken, and a semicolon; for each queue the number
--       of its tasks (4 digits) and the length of their ids (8); the ids of each queue with commas
--       between; the length of each record (4 bytes); the records. The records of several tasks are texts
--       of their own in the list. Behind them stand lists for the queues of which the reply has more:
--       index of the queue, info, {cursor id, record, ...}, last, lines. info has 15 bytes for each task:
--       "1" if it started, its deadline (7), and when it was claimed (7). It is empty if the first
--       tasks of the call started and all have the deadline now + lease. last is "f" if the queue may be
--       forgotten, or "!" and the tasks that ended (maintain.lua). lines has "b" if the limit of the queue
--       admits no task of this call, or not the next task (limit.lua), and "h" if tasks wait because their
--       partition is at its Concurrency; else the field of the meta hash if the queue has no task in lines of
--       these kinds, and no limit.

local total = tonumber(ARGV[1])
local queues = openall(total)
local most, starts, lasts = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[10])
local suspects, telling, suspicious = ARGV[9] == '1', ARGV[9] == 't', false

local taken, bytes, full, suspect, remains = 0, 0, false, false, false
local more = false -- whether maintenance is left over
local claimed = 0 -- the version of all tasks taken
local fence = ''
local nextdue = 0
local news = {} -- the queues that were maintained, with the results
ring.looked = 0 -- how many partitions of all queues it has read
ring.took = 0 -- how many tasks of queues with partitions it has taken
-- The outcome has a part for each queue of the whole call, so that a repeat that leaves out others finds its own.
ring.places = {}
for at in string.gmatch(ARGV[#ARGV - 1], '%d+') do ring.places[#ring.places + 1] = tonumber(at) end
local crowd = 0 -- how many queues have lines of the claim's kinds

local named

do
-- somelines returns the lines by name of a queue. If there are more than LOOKED it returns
-- LOOKED of them, beginning at a different one each time.
local function somelines(q)
  local lines = byname.lines(q[LINES], nil, LOOKED + 1)
  if #lines <= LOOKED then return lines end
  local at = now % max(call('ZCARD', q[LINES]) - ring.count(q[LINES]), 1)
  lines = byname.lines(q[LINES], byname.line(call('ZRANGE', q[LINES], at, at)[1]), LOOKED)
  for _, line in ipairs(byname.lines(q[LINES], nil, LOOKED - #lines)) do lines[#lines + 1] = line end
  q.cut = true
  return lines
end

-- named finds the lines of the claim's kinds in a queue, and how many tasks are in these lines,
-- suspects counted apart. It notes that a claim has named these kinds.
function named(q)
  local own, lines, fields, known = {}, {}, {}, {}
  q.own, q.declined, q.doubted = own, 0, 0
  local some = call('ZCARD', q[LINES]) > 0
  if some and q.m.lines == 0 then set(q, 'lines', mark) end -- lines was damaged
  if q.m.lines == 0 then return end
  if some then
    for kind in string.gmatch(ARGV[11 + total], '[^,]+') do lines[#lines + 1] = 'k' .. kind end
    if #lines == 0 then lines = somelines(q) end
  end
  for i = 1, #lines do fields[i] = 'l:' .. lines[i] end
  local v = lookup(q[SIDE], fields)
  for i, line in ipairs(lines) do
    if v[i] and not known[line] then
      known[line] = true
      local n, suspects = byname.sizes(q, line, v[i])
      own[#own + 1] = {name = line, n = n, suspects = suspects}
      q.declined, q.doubted = q.declined + n, q.doubted + suspects
      if now - number(v[i], 1, PLACE) >= DECLINEDFOR / 24 then put(q, fields[i], pack7(now) .. sub(v[i], PLACE + 1)) end
    end
  end
  if #own == 0 and q.m.lines > 0 then q.lines = text(q.m.lines) end
end

end

local upkeep

do
-- sound fails if a key of a queue has a wrong type: before the step of upkeep, and not in the step after it.
local function sound(q)
  for _, key in ipairs({TASKS, PENDING, SIDE, CLAIMS, DAMAGED}) do call('HLEN', q[key]) end
  for _, key in ipairs({WAITING, SUSPECTS, LINES, LEASES, VOIDS, IDLE}) do call('ZCARD', q[key]) end
  if q.m.lines < 0 then call('ZCARD', q[RING]) end
  call('LLEN', q[LINE])
end

-- upkeep maintains the queues in which something may be due, as a step of its own. It returns an
-- error reply if Redis permits no writes.
function upkeep()
  local lane, due, unfinished, tells = queues[1].opened, {}, {}, false
  queues[1].opened = {}
  for i, q in ipairs(queues) do
    if q.m.jumped == 0 and (q.m.soon <= now or #ring.overlong(q) > 0) then
      sound(q)
      call('ZCARD', queues[1][OPENED])
      if ARGV[10 + i] ~= MAXNONE then named(q) end -- before forsake, which spares kinds that were named
      news[i], due[#due + 1], unfinished[i] = q, q, maintain(q, i, total)
      more = more or unfinished[i] or q.unticked
      tells = tells or #q.ticks + #q.ended > 0
    end
  end
  for i, q in ipairs(tells and queues or {}) do -- only this call hands the cursors out, and names the tasks that ended
    if not news[i] then sound(q) end
  end
  local refused = commit(due, false, true)
  if refused then return refused end
  if #due > 0 then queues = openall(total) end
  queues[1].opened = lane
  for i, q in pairs(news) do look(queues[i], not q.unticked and (unfinished[i] or q.later)) end
  return nil
end

end

local soonest

do
local function duesoon(at)
  if at > 0 and (nextdue == 0 or at < nextdue) then nextdue = at end
end

-- soonest notes when the next task or cursor of a queue is due, or after a jump the end of the wait. It
-- also notes when a rate that is spent admits the next start, the end of a rest, and the end of a pause during which
-- tasks wait that the claim could take.
function soonest(q)
  duesoon(q.m.jumped > 0 and q.m.jumped + JUMPWAIT or q.m.due)
  if q.m.jumped == 0 then
    duesoon(limits.next(q))
    duesoon(q.rated or 0)
    duesoon(ring.resting(q) and q.m.rest or 0)
  end
  if q.m.paused < 0 or q.m.jumped > 0 or not paused(q.m, now) then return end
  local waiting = call('ZCARD', q[WAITING]) + lined(q) + q.declined + call('ZCARD', q[SUSPECTS]) + q.doubted
  if waiting > 0 or q.m.lines < 0 and call('ZCOUNT', q[RING], '-inf', '(0') > 0 then duesoon(q.m.paused) end
end

end
