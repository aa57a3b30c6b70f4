-- configure: changes settings of a queue, creates it, or removes it.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 lane field, 2 seq, 3 opened, 4 "set", "remove", "forget" to remove the queue if it is
--       abandoned, or "rest" or "own"; for these the key of a partition, and for rest 0 to resume it, -1 to pause it
--       without end, else for how long (µs), for own the text of its own limit, "" to clear it; for set then each setting that changes, none to create the queue: its name and its
--       value, which is for "pause" 0 for none, -1 for a pause without end, else its length (µs); for "limit", of
--       the operator, and for "declared" a text as limit.go in package engine writes it, "" for none
-- Returns  {verdict, now, "" or "notempty"}

local q = openall(1)[1]

local operator, declared -- the new limits, nil for a limit that stays

-- SETTINGS change a setting each.
local SETTINGS = {
  pause = function(v)
    local length = tonumber(v)
    set(q, 'paused', length > 0 and now + length or length)
  end,
  limit = function(v) operator = v end,
  declared = function(v) declared = v end,
}

-- bounds returns the limit of partitions as a text.
local function bounds()
  local each = rate.each(q)
  return each and table.concat({each.most, each.n, each.per, each.weight}, ' ')
end

-- patch changes the named settings, and leaves the others. A queue that does not exist has the value 0 or "" in each,
-- and is made if a setting gets another value, or without any setting.
local function patch()
  local exists = q.m.mark > 0 or #ARGV == 4
  for i = 6, #ARGV, 2 do exists = exists or ARGV[i] ~= '0' and ARGV[i] ~= '' end
  if not exists then return '' end
  local before = bounds()
  for i = 5, #ARGV, 2 do SETTINGS[ARGV[i]](ARGV[i + 1]) end
  if operator or declared then limits.change(q, operator, declared) end
  if bounds() ~= before then ring.loosen(q) end
  set(q, 'touched', now)
  set(q, 'soon', 0)
  q.asked = #ARGV > 4 -- runners without free slots have to learn of settings too
  return ''
end

-- rest pauses a partition or resumes it.
local function rest()
  local line, length = 'p' .. ARGV[5], tonumber(ARGV[6])
  if q.m.mark == 0 and length == 0 then return '' end
  ring.pause(q, line, length > 0 and now + length or length < 0 and NEVER or 0)
  set(q, 'touched', now)
  set(q, 'soon', 0)
  q.asked = true
  return ''
end

-- own sets the limit of one partition or clears it.
local function own()
  if q.m.mark == 0 and ARGV[6] == '' then return '' end
  ring.bound(q, 'p' .. ARGV[5], ARGV[6])
  set(q, 'touched', now)
  set(q, 'soon', 0)
  q.asked = true
  return ''
end

local function remove()
  if not empty(q) then return 'notempty' end
  q.removed = true
  return ''
end

local function forget() return abandoned(q) and remove() or 'notempty' end

local verdict, outcome = admit(q, ARGV[1], ARGV[2], ARGV[3], 'S')
if verdict ~= 'N' then return {verdict, text(now), outcome and sub(outcome, 2)} end
outcome = ({set = patch, rest = rest, own = own, remove = remove, forget = forget})[ARGV[4]]()
remember(q, ARGV[1], ARGV[2], 'S' .. outcome)
local refused = commit({q}, false)
if refused then return refused end
if q.removed then
  -- All keys go but the lanes, which still record which calls happened. UNLINK takes no time, however many members
  -- they have.
  for i = 1, BLOCK do
    if i ~= LANES and i ~= OPENED then call('UNLINK', q[i]) end
  end
end
return {verdict, text(now), outcome}
