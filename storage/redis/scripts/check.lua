-- check: reads the arguments of apply.lua, and checks whether each operation may happen.

local WIDTH, SETTLES, CHECKS, Q, queues
local step = 0       -- the number of the Tx under way
local obstacles      -- of the Tx under way, nil while there are none
local op             -- the number of the operation under way
local decided        -- operation -> queue and id of the existing task that it names; nil while there are none
local out            -- the outcome of the call, in pieces
local bare, record, version, letter, existing, moment, checksettle, requeues, forgets, target

do
-- bare reports whether a task whose lease has these flags can end by its mere removal.
function bare(flags) return flags % GROUPED <= STARTED end

-- taken reports whether the id of a loaded entry is in use, so that no insert may have it: its task is in
-- a state, or may be in one, because a damaged record does not show its place.
local function taken(e) return e.st or e.rec and not head(e.rec) end

-- record returns the header of an entry's record, nil if the record is damaged or gone.
function record(q, e)
  if e.rec == nil then e.rec = call('HGET', q[TASKS], e.id) end
  return head(e.rec)
end

-- version returns the version of an entry that is in a state, nil if its record is damaged.
function version(e)
  if e.st == 'p' then return number(e.lease, 17, 7) end
  local h = head(e.rec)
  return h and h.version
end

WIDTH = {c = 4, C = 5, f = 9, s = 9, r = 9, b = 9, x = 9, y = 9, i = 6, k = 6, m = 15, d = 4, n = 4}
-- SETTLES has for each settle the state to which it leads.
SETTLES = {c = 'c', C = 'c', f = 'r', s = 's', r = 'w', b = 'd', x = 'x', y = 'k'}

queues = openall(tonumber(ARGV[1]))
Q = {}
for i, q in ipairs(queues) do Q[ARGV[3 + i]] = q end

local function obstacle(letter, rest)
  obstacles = obstacles or {}
  obstacles[#obstacles + 1] = letter .. pack2(op) .. (rest or '')
end

-- letter returns the letter of a state as the contract has it, "-" for none.
local SHOWN = SHOWNSTATES
function letter(st) return SHOWN[st] or st or '-' end

function existing(q, id)
  local e = load(q, id)
  local v = e.st and version(e) or 0
  return 'E' .. letter(e.st) .. pack7(v) .. char(#id) .. id
end

-- moment returns the time of a due argument: "" is now, "+" leads a delay, "=" leads the time itself.
function moment(due)
  if due == '' then return now end
  if byte(due, 1) == 43 then return now + tonumber(sub(due, 2)) end
  return tonumber(sub(due, 2))
end

-- holderof returns the id of the task that holds a unique key, or holds it after an operation of this Tx.
local function holderof(q, key)
  local r = q.reserved
  return unique.holder(q, key) or r and r.step == step and r[key] or nil
end

local function decide(q, id)
  decided = decided or {}
  decided[op] = {q, id}
end

local function reserve(q, key, id)
  if not q.reserved or q.reserved.step ~= step then q.reserved = {step = step} end
  q.reserved[key] = id
end

-- same reports whether an existing record has the kind, encoding, payload and declaration of a cursor of
-- the record that an insert would make.
local function same(q, id, old, new, body)
  local a, b = head(old), head(new)
  if not a or not b or a.cursor ~= b.cursor or a.kind ~= b.kind or a.encoding ~= b.encoding
    or a.payload ~= b.payload or a.large ~= b.large then
    return false
  end
  local names = a.kind + a.encoding - 1
  if sub(old, a.kindat, a.kindat + names) ~= sub(new, b.kindat, b.kindat + names) then return false end
  if a.cursor then -- the declaration comes first, behind its length
    local n = number(old, a.cursorat + 3, 3) + 5
    if sub(old, a.cursorat + 3, a.cursorat + n) ~= sub(new, b.cursorat + 3, b.cursorat + n) then return false end
  end
  if a.large then return aside(q, 'b:' .. id) == body end
  return sub(old, a.payloadat) == sub(new, b.payloadat)
end

-- The checks add obstacles, decided operations and reserved keys of the Tx under way. They change nothing
-- else.

local function checkinsert(a)
  local q, id, rec = Q[ARGV[a + 1]], ARGV[a + 2], ARGV[a + 3]
  local e = entry(q, id)
  if e.rec == nil or e.rec then
    load(q, id)
    if taken(e) and e.leaving ~= step then
      if same(q, id, e.rec, rec, ARGV[a + 5]) then decide(q, id)
      else obstacle('c') end
      return
    end
  end
  local f = byte(rec, 2)
  if f >= 16 and floor(f / 16) % 4 > 0 then
    local key = head(rec).key
    local by = holderof(q, key)
    if not by then reserve(q, key, id)
    elseif ARGV[a] == 'k' then decide(q, by)
    else obstacle('u', char(#by) .. by) end
  end
end

function checksettle(a)
  local q = Q[ARGV[a + 1]]
  local e = q.e[ARGV[a + 2]]
  local l = e.lease
  if not l or sub(l, 1, FENCE) ~= ARGV[a + 3] then return obstacle('l') end
  local o = ARGV[a]
  if o ~= 'c' and o ~= 'C' and not record(q, e) then obstacle('l') end
end

-- checkversion reports whether an entry exists and has the version that an operation wants ('0' for any).
-- If not, it adds an obstacle.
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

-- requeues reports whether a change is a requeue.
function requeues(a) return find(ARGV[a + 8], 'q', 1, true) ~= nil end

-- forgets reports whether a change clears progress and checkpoint; see storage.Change.Forgets.
function forgets(st, a) return find(ARGV[a + 8], 's', 1, true) or requeues(a) and st == 'c' end

-- timed reports whether a change names a due time. The due time of a new cursor does not count.
local function timed(a) return ARGV[a + 6] ~= '' and not find(ARGV[a + 8], 'c', 1, true) end

-- target returns the state to which a change leads; see storage.Change.Target.
function target(st, a)
  if ARGV[a + 5] ~= '' then return ARGV[a + 5] end
  if timed(a) then return st == 'r' and 'r' or 's' end
  return requeues(a) and 'w' or letter(st)
end

-- permitted reports whether a change may happen in a state; see storage.Change.Permitted.
local function permitted(st, a)
  local to, waits = ARGV[a + 5], LIVE[st] and st ~= 'p'
  if requeues(a) then return ENDED[st] end
  if to == 'x' then return waits or st == 'p' or st == 'x' end
  if to == 'w' or timed(a) then return waits end
  return waits or st == 'd' or st == 'u'
end

local function checkchange(a)
  local q, id = Q[ARGV[a + 1]], ARGV[a + 2]
  local e = load(q, id)
  if not checkversion(e, ARGV[a + 3]) then return end
  if not permitted(e.st, a) then return obstacle('b', letter(e.st)) end
  if e.st == 'p' then return end
  local h = head(e.rec)
  if not h then return obstacle('m') end
  local t = ARGV[a + 4] ~= '' and Q[ARGV[a + 4]]
  if t and taken(load(t, id)) then obstacle('c') end
  if h.life and not ENDED[target(e.st, a)] and (t or ENDED[e.st]) then
    local by = holderof(t or q, h.key)
    if by then return obstacle('u', char(#by) .. by) end
    reserve(t or q, h.key, id)
  end
end

CHECKS = {i = checkinsert, k = checkinsert, m = checkchange, d = checkdelete, n = checkdepend}
end

