-- answer: the last part of claim.lua: the leases, the reply, and the call itself.

-- seal plans the leases of the tasks that were taken from a queue, as a group if there are enough.
local function seal(q)
  if #q.ids == 0 then return end
  local joined = table.concat(q.ids, ',')
  local runner = claimed - now < JUMPBACK and ARGV[6] or ARGV[6] .. '\0' .. pack7(now) -- see record.go
  local pending, alarms, group = leases(q.ids, q.flags, fence, runner, text(now + lasts), joined, q.counted)
  if call('HLEN', q[PENDING]) == 0 then pending[#pending + 1], pending[#pending + 2] = '', PAD end
  write(q, 'ZADD', LEASES, alarms)
  write(q, 'HSET', CLAIMS, group or {})
  write(q, 'HSET', PENDING, pending)
  lower(q, now + lasts)
  q.used = true
end

local answer

do
-- rare adds the list of the i-th queue to the reply, if the reply has more of that queue than its tasks.
local function rare(reply, q, i)
  local ticks, ended = news[i] and news[i].ticks or {}, news[i] and news[i].ended or {}
  local last = #ended > 0 and '!' .. table.concat(ended) or q.forget and 'f' or ''
  local bounds = (q.bounded and 'b' or '') .. (q.held and 'h' or '')
  if q.info or #ticks > 0 or last ~= '' or q.lines or bounds ~= '' then
    reply[#reply + 1] = {i - 1, q.info or '', ticks, last, bounds ~= '' and bounds or q.lines or ''}
  end
end

-- answer returns the reply.
function answer(verdict)
  local cancels = false
  for _, q in ipairs(queues) do
    if q.m.cancels > 0 then cancels = true end
  end
  local joined, records, sizes = {}, {}, {}
  for i, q in ipairs(queues) do
    joined[i] = table.concat(q.ids, ',')
    sizes[i] = string.format('%04d%08d', #q.ids, #joined[i])
    for j = 1, #q.recs do records[#records + 1] = q.recs[j] end
  end
  local lengths, pieces = packed(records)
  local reply = {string.format('%s%016.0f%016.0f%016.0f%04d', verdict, now, nextdue, claimed, taken) ..
    (more and 'm' or '') .. (remains and 't' or '') .. (cancels and 'c' or '') .. (suspicious and 's' or '') ..
    (suspect and 'z' or '') .. ';' .. table.concat(sizes) .. table.concat(joined) .. lengths, unpack(pieces)}
  for i, q in ipairs(queues) do rare(reply, q, i) end
  return reply
end
end

-- again adds the tasks of the first try's outcome that are still pending under its fence.
local function again(outcome)
  claimed = number(outcome, 2, 7)
  fence = ARGV[5] .. sub(outcome, 2, 8)
  local bar = find(outcome, '|', 9, true)
  suspect = byte(outcome, 9) == 49
  local parts = {}
  for part in string.gmatch(sub(outcome, bar + 1), '([^;]*);') do parts[#parts + 1] = part end
  for n, q in ipairs(queues) do
    local list, info = {}, {}
    for id in string.gmatch(parts[ring.places[n] or n] or '', '[^,]+') do list[#list + 1] = id end
    taken = taken + #list
    local leases = #list > 0 and lookup(q[PENDING], list) or {}
    local recs = #list > 0 and lookup(q[TASKS], list) or {}
    for i, id in ipairs(list) do
      local l, rec = leases[i], recs[i]
      if l and rec and sub(l, 1, FENCE) == fence then
        q.ids[#q.ids + 1], q.recs[#q.recs + 1] = id, rec
        info[#info + 1] = (has(byte(l, FENCE + 1), STARTED) and '1' or '0') .. pack7(sane(expiry(q, id, l)) or now) ..
          (string.match(runnerof(l), '%z(.......)$') or pack7(claimed))
      end
    end
    q.info = table.concat(info)
  end
end

local verdict, outcome = admit(queues[1], ARGV[2], ARGV[3], ARGV[4], 'C')
if verdict == 'R' then
  for i, q in ipairs(queues) do
    q.ids, q.recs, q.declined, q.doubted = {}, {}, 0, 0
    if ARGV[10 + i] ~= MAXNONE then named(q) end -- its notes are not written in a repeat
    q.lines = nil
  end
  again(outcome)
  for i, q in ipairs(queues) do
    if tonumber(ARGV[10 + i]) >= 0 then limits.look(q, true) end
    q.bounded = limits.bounds(q, starts)
    soonest(q)
  end
elseif verdict == 'N' then
  local refused = upkeep()
  if refused then return refused end
  mark = mark + 1
  claimed = mark
  fence = ARGV[5] .. pack7(claimed)
  local parts = {}
  for i, q in ipairs(queues) do
    q.own, q.declined, q.doubted = {}, 0, 0
    if ARGV[10 + i] ~= MAXNONE then named(q) end
    if #q.own > 0 then crowd = crowd + 1 end
  end
  for i, q in ipairs(queues) do
    local others = take(q, tonumber(ARGV[10 + i]))
    ring.settle(q)
    q.bounded = limits.bounds(q, starts)
    q.work, q.news = others and news[i] and news[i].work, others and news[i] and news[i].news
    seal(q)
    q.forget = news[i] and #q.plan == 0 and #q.touched == 0 and abandoned(q)
    if q.m.mark > 0 then
      set(q, 'mark', mark)
      if tonumber(ARGV[10 + i]) >= 0 and most > 0 and not q.remains and not q.bounded then
        write(q, 'ZADD', IDLE, {text(now), ARGV[#ARGV]})
      end
    end
    for _ = #parts + 2, ring.places[i] or i do parts[#parts + 1] = ';' end -- of queues that were left out
    parts[#parts + 1] = table.concat(q.ids, ',') .. ';'
  end
  for _, q in ipairs(queues) do
    limits.forgo(q)
    q.held = q.held and not q.bounded
    soonest(q)
  end
  remember(queues[1], ARGV[2], ARGV[3],
    'C' .. pack7(claimed) .. (suspect and '1' or '0') .. taken .. '|' .. table.concat(parts))
  refused = commit(queues, false)
  if refused then return refused end
else
  return string.format('%s%016.0f', verdict, now)
end

return answer(verdict)
