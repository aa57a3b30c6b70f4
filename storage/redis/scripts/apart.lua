-- apart: sets tasks apart whose records the client that claimed them could not read.
--
-- KEYS  the keys of the queue (keys.go)
-- ARGV  1 fence, 2... ids
-- Returns  how many tasks were set apart

local q = openall(1)[1]
local n = 0
for i = 2, #ARGV do
  local e = load(q, ARGV[i])
  if e.lease and sub(e.lease, 1, FENCE) == ARGV[1] then
    setapart(q, e)
    n = n + 1
  end
end
local refused = commit({q}, false)
if refused then return refused end
return n
