-- divide: notes in a lane that a call is divided, because it failed on damaged data: it will never happen as a whole,
-- and its caller carries out each of its Txs, or asks each of its queues, in a call of its own. It reads and writes
-- nothing but lanes, because anything else of the queue may be damaged.
--
-- KEYS  the keys of the queue whose lanes have the call (keys.go)
-- ARGV  1 lane field, 2 seq, 3 opened
-- Returns  the verdict of admit: N if the call is divided now, D if it was before, and R, with the
--       outcome, if it has happened

local q = {lanes = {}, opened = {}}
for i = 1, BLOCK do q[i] = KEYS[i] end
local t = call('TIME')
now = t[1] * 1000000 + t[2]
local verdict, outcome = admit(q, ARGV[1], ARGV[2], ARGV[3], '')
if verdict == 'N' then
  remember(q, ARGV[1], ARGV[2], 'D')
  local freed = redis.pcall('ZREM', q[OPENED], '') -- a full Redis accepts it, and the writes that follow
  if type(freed) == 'table' and freed.err then return refusal(freed) end
  if #q.opened > 0 then call('ZADD', q[OPENED], unpack(q.opened)) end
  call('HSET', q[LANES], unpack(q.lanes))
end
return verdict .. (outcome or '')
