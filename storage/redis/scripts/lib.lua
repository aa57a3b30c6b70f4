-- lib: functions that the general scripts of a queue share. It, record.lua, byname.lua, entry.lua,
-- rate.lua, ring.lua and commit.lua are prepended to each of these scripts, behind base.lua.
--
-- A script reads the data that it needs into entries and overlays, decides only on those, and writes
-- at the very end, in commit: Redis does not roll back, so nothing may fail after the first write.
-- Several steps of one call that change the same task result in one write.

-- The states, by their letters, which states.go takes from the one table of all states. SETS has the sorted
-- set of each. A suspect (z) waits in a set of its own; pending tasks (p) are sorted by the deadline of
-- their lease, and the tasks of a group are one member. A task that waits in the line (l) is in no set: it
-- has a record and is in none of these. Declined tasks (k) wait in the lines of their kinds, which are one
-- set: see byname.lua. Tasks with a partition wait in the same set and have the same letter: see ring.lua. The set of a state in PLACED is sorted by a moment. The member of a task there
-- is a place, which is a number that grows, and its id, so that tasks of the same moment come in the order in
-- which steps put them there. The record has the place behind its header. A promotion replaces it by a moment:
-- see joined in record.lua. Tasks and cursors of a state in TIMED fall due.
local SETS, LIVE, ENDED, PLACED, TIMED = STATESETS, LIVESTATES, ENDEDSTATES, PLACEDSTATES, TIMEDSTATES

-- FIELDS are the fields of the meta hash, all of them numbers; see doc.go.
local TOTALS = {'enqueued', 'requeued', 'completed', 'dead', 'cancelled', 'deleted', 'failed', 'crashed', 'evicted'}
local FIELDS = {'lines', 'void', 'mark', 'soon', 'due', 'odd', 'tail', 'turn', 'head', 'paused', 'rest', 'cancels', 'touched',
  'jumped', 'clock', 'looks', 'reindex', 'reindexed', 'own', unpack(TOTALS)}

-- FIELDS.least has the least values of the fields that may be negative. A field that is damaged counts as 0: other
-- queues of the same step must not take over a mark that is out of range.
FIELDS.least = {lines = -1, head = 1 - NEVER, paused = -1}

-- KINDS are the prefixes of a task's fields in the side hash: history and reason, stack, result,
-- progress, checkpoint, large payload (body).
local KINDS = {'h:', 's:', 'r:', 'p:', 'c:', 'b:'}

local now, mark = 0, 0 -- the clock, and the mark of the step under way

-- has reports whether a byte has a flag.
local function has(flags, flag) return floor(flags / flag) % 2 == 1 end

-- number reads a big-endian number of n bytes at i.
local function number(s, i, n)
  local v = 0
  for j = i, i + n - 1 do v = v * 256 + (byte(s, j) or 0) end
  return v
end

-- pack2 returns a number as 2 bytes, big-endian.
local function pack2(v) return char(floor(v / 256), v % 256) end

local function set(q, field, v) q.m[field] = v; q.dirty[field] = true end

-- open returns the n-th queue that the call names, with its numbers from the meta hash.
local function open(n)
  local q = {m = {}, dirty = {}, e = {}, touched = {}, side = {}, unique = {}, windows = {},
    plan = {}, last = {}, apart = {}, lanes = {}, opened = {}, left = {}, counts = {}, strays = {}, deaths = 0, joiners = {}, joins = 0}
  for i = 1, BLOCK do q[i] = KEYS[(n - 1) * BLOCK + i] end
  local v = call('HMGET', q[META], unpack(FIELDS))
  for i = 1, #FIELDS do q.m[FIELDS[i]] = v[i] and sane(v[i], FIELDS.least[FIELDS[i]]) or 0 end
  if v[1] and not sane(v[1], FIELDS.least.lines) then set(q, 'lines', -1) end -- it may have stood for a limit
  -- A task may have several void entries and is in voids once: the number is known again only once voids is empty.
  if v[2] and not sane(v[2]) then q.m.void, q.guessed = call('ZCARD', q[VOIDS]), true end
  return q
end

-- openall returns all queues of the call, and sets now and mark. It sets the field jumped of a queue in
-- which timed work begins or ceases to wait (jump.lua).
local function openall(n)
  local queues = {}
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  mark = now
  for i = 1, n do
    local q = open(i)
    queues[i] = q
    local since = waitsince(q.m.clock > 0 and q.m.clock or q.m.mark, q.m.jumped, now)
    if since ~= q.m.jumped then
      set(q, 'jumped', since)
      set(q, 'soon', 0)
    end
    if q.m.mark >= mark then mark = q.m.mark + 1 end
  end
  return queues
end

local function bump(q, field, by) q.m[field] = q.m[field] + by; q.dirty[field] = true end

-- paused reports whether a queue with these numbers is paused at a moment.
local function paused(m, at) return m.paused < 0 or m.paused > at end

-- empty reports whether a queue has no tasks and no cursors.
local function empty(q)
  for _, key in pairs(SETS) do
    if call('ZCARD', q[key]) > 0 then return false end
  end
  return call('HLEN', q[TASKS]) == 0
end

-- abandoned reports whether a queue is empty, has no settings, and was not used for QUEUELIFE.
local function abandoned(q)
  return q.m.touched > 0 and now - q.m.touched >= QUEUELIFE and q.m.jumped == 0 and not paused(q.m, now)
    and q.m.lines >= 0 and empty(q) and call('ZCARD', q[WINDOWS]) + call('ZCARD', q[RING]) + call('HLEN', q[DAMAGED]) == 0
end

-- place returns the score that orders waiting tasks by priority, then by a number.
local function place(priority, seq) return seq - priority * SPREAD end

-- spot decides where a task joins that comes to wait in the state w or z: behind all others of its priority,
-- or before them if head is true. It returns its state and its score. The number in the score grows at the
-- tail and falls at the head. A task that joins the tail of priority 0 joins the line, whose last entry has the
-- number tail. Each push adds one to tail, and removals leave it. So the number of an entry follows from its
-- index, and the numbers in cursors and in voids stay valid while claims take from the head. Tasks are
-- pushed at the end of the call (planline); until then joins counts them.
local function spot(q, st, priority, head)
  if head then
    bump(q, 'head', -1)
    return st, place(priority, q.m.head)
  end
  if priority == 0 and st == 'w' then
    q.joins = q.joins + 1
    return 'l', q.m.tail + q.joins
  end
  bump(q, 'turn', 1)
  if priority ~= 0 then return st, place(priority, q.m.turn) end
  return st, q.m.tail + q.joins + (q.m.turn % 1048576 + 1) / 1048577 -- a suspect, between two entries of the line
end

-- firstof returns the number of the first entry of the line, and how many entries there are.
local function firstof(q)
  local length = call('LLEN', q[LINE])
  return q.m.tail - length + 1, length
end

-- lined returns how many tasks wait in the line.
local function lined(q) return max(call('LLEN', q[LINE]) - q.m.void, 0) end

-- entries returns the ids of n entries of the line from an index on, and false for each void entry, whose
-- task left out of turn. first is the number of the first entry of the line. voids has by id the number
-- up to which its entries are void.
local function entries(q, first, from, n)
  local ids = call('LRANGE', q[LINE], from, from + n - 1)
  if #ids == 0 or call('ZCARD', q[VOIDS]) == 0 then return ids end
  for i = 1, #ids, 500 do
    local upto = call('ZMSCORE', q[VOIDS], unpack(ids, i, min(i + 499, #ids)))
    for j = 1, #upto do
      if upto[j] and tonumber(upto[j]) >= first + from + i + j - 2 then ids[i + j - 1] = false end
    end
  end
  return ids
end

-- valid reports whether an id or a kind passes storage.CheckName. A text that does not is damaged: no
-- insert can have written it.
local function valid(id) return #id <= 128 and find(id, '^%w[%w_.:-]*$') end
