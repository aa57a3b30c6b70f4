-- layout: notes the layout of the data that a process writes, unless it cannot read the data.
--
-- KEYS  1 hash: the latest layout that was written, and the least that a process has to know to read it
-- ARGV  1 the layout that the process knows and writes, 2 the least layout that can read this data
-- Returns  {layout, least reader} as they were before, 0 if none was noted

local have = redis.call('HMGET', KEYS[1], 'layout', 'reader')
local layout, reader = sane(have[1]) or 0, sane(have[2]) or 0
local knows, wants = tonumber(ARGV[1]), tonumber(ARGV[2])
if reader <= knows and (layout < knows or reader < wants) then -- pcall: a user without writes can still read
  redis.pcall('HSET', KEYS[1], 'layout', math.max(layout, knows), 'reader', math.max(reader, wants))
end
return {layout, reader}
