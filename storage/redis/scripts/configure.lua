-- configure: replaces the settings of a queue, creates it, or removes it.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 lane field, 2 seq, 3 opened, 4 "set", "create", "remove", or "forget" to remove the queue if
--       it is empty, has no settings and was not used for the time in 5;
--       5 for set: 0 not paused, -1 paused without end, else the length of the pause (µs); for forget: µs
-- Returns  {verdict, now, "" or "notempty"}

local q = openall(1)[1]

local function empty()
  for _, key in pairs(SETS) do
    if call('ZCARD', q[key]) > 0 then return false end
  end
  return call('HLEN', q[TASKS]) == 0
end

local function remove()
  if not empty() then return 'notempty' end
  if ARGV[4] == 'forget' then
    if now - q.m.touched < tonumber(ARGV[5]) or q.m.jumped > 0 or q.m.paused ~= 0 or call('ZCARD', q[WINDOWS]) > 0 then
      return 'notempty'
    end
  end
  q.removed = true
  return ''
end

local verdict, outcome = admit(q, ARGV[1], ARGV[2], tonumber(ARGV[3]))
if verdict == 'R' then
  if byte(outcome, 1) ~= 83 then return {'O', text(now)} end
  return {verdict, text(now), sub(outcome, 2)}
end
if verdict ~= 'N' then return {verdict, text(now)} end
if ARGV[4] == 'set' then
  local pause = tonumber(ARGV[5])
  outcome = ''
  if pause ~= 0 or q.m.mark > 0 then
    set(q, 'paused', pause > 0 and now + pause or pause)
    set(q, 'touched', now)
    set(q, 'soon', 0)
    q.asked = true -- runners without free slots have to learn of settings too
  end
elseif ARGV[4] == 'create' then
  outcome = ''
  set(q, 'touched', now)
  set(q, 'soon', 0)
else
  outcome = remove()
end
remember(q, ARGV[1], ARGV[2], 'S' .. outcome)
local refused = commit({q}, false)
if refused then return refused end
if q.removed then -- deletes all keys but the lanes, which still tell which calls happened
  for i = 1, BLOCK do
    if i ~= LANES and i ~= OPENED then call('DEL', q[i]) end
  end
end
return {verdict, text(now), outcome}
