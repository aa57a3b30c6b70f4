-- extend: extends leases, marks tasks started, writes progress and checkpoints.
--
-- KEYS  the keys of each queue (keys.go), queue after queue; the lanes of the first one have the call
-- ARGV  1 queues, 2 lane field, 3 seq, 4 opened, 5 leases, then the names of the
--       queues, then each lease: its queue, id, fence, new lease from now (µs, 0 to leave it), marks ("s"
--       if it started, "p" and "c" if progress and checkpoint are to be written), progress,
--       checkpoint
-- Returns  {verdict, now, a byte for each lease: "." extended, "c" extended and to be
--       cancelled, "l" lost}. A repeat returns now and the bytes of the first try.

local queues = openall(tonumber(ARGV[1]))
local Q = {}
for i, q in ipairs(queues) do Q[ARGV[5 + i]] = q end
local begin = 6 + #queues

local function prefetch(n)
  for i = begin, begin + n * 7 - 1, 7 do
    local q = Q[ARGV[i]]
    q.named = q.named or {}
    q.named[#q.named + 1] = ARGV[i + 1]
  end
  for _, q in ipairs(queues) do
    if q.named then
      local leases = lookup(q[PENDING], q.named)
      for i, id in ipairs(q.named) do
        leased(entry(q, id), leases[i])
      end
    end
  end
end

-- rankof returns the rank of a task in the claim of its group.
local function rankof(q, e)
  q.ranks = q.ranks or {}
  local ranks = q.ranks[e.group]
  if not ranks then
    local n = 0
    ranks = {}
    for id in string.gmatch(call('HGET', q[CLAIMS], e.group) or '', '[^,]+') do
      ranks[id] = n -- a statement of its own, because miniredis would assign n + 1 otherwise
      n = n + 1
    end
    q.ranks[e.group] = ranks
  end
  return ranks[e.id] or 0
end

local function extend(i)
  local q, id, marks = Q[ARGV[i]], ARGV[i + 1], ARGV[i + 4]
  local e = entry(q, id)
  if not e.lease or sub(e.lease, 1, FENCE) ~= ARGV[i + 2] then return 'l' end
  local flags = byte(e.lease, FENCE + 1)
  local asked = has(flags, ASKED)
  if find(marks, 's', 1, true) and not has(flags, STARTED) then flags = flags + STARTED end
  if find(marks, 'p', 1, true) then put(q, 'p:' .. id, ARGV[i + 5]) end
  if find(marks, 'c', 1, true) then put(q, 'c:' .. id, ARGV[i + 6]) end
  if find(marks, '[pc]') and not has(flags, ASIDE) then flags = flags + ASIDE end
  local rest = sub(e.lease, FENCE + 2)
  if ARGV[i + 3] ~= '0' and has(flags, GROUPED) then
    flags, rest = flags - GROUPED, pack2(rankof(q, e)) .. rest
  end
  if flags ~= byte(e.lease, FENCE + 1) then lease(q, e, sub(e.lease, 1, FENCE) .. char(flags) .. rest) end
  if ARGV[i + 3] ~= '0' then move(q, e, 'p', now + tonumber(ARGV[i + 3])) end
  return asked and 'c' or '.'
end

local n = tonumber(ARGV[5])
local verdict, outcome = admit(queues[1], ARGV[2], ARGV[3], ARGV[4], 'X')
if verdict == 'R' then return {verdict, text(number(outcome, 2, 7)), sub(outcome, 9)} end
if verdict ~= 'N' then return {verdict, text(now)} end
prefetch(n)
local out = {}
for i = 1, n do out[i] = extend(begin + (i - 1) * 7) end
outcome = table.concat(out)
remember(queues[1], ARGV[2], ARGV[3], 'X' .. pack7(now) .. outcome)
local refused = commit(queues, false)
if refused then return refused end
return {verdict, text(now), outcome}
