-- probe: tries all commands that the scripts use, and returns the names of those that the server refuses. It
-- leaves nothing behind. Its first write frees memory, after which a full Redis refuses none.
--
-- KEYS  1 a key that does not exist
-- ARGV  1 a channel
-- Returns  {the names of the commands for reading that were refused, those of the commands for writing, the
--       error of the first refused write or ""}

local key, refused, reason = KEYS[1], {}, ''
local function try(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) ~= 'table' or not reply.err then return end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return end -- something was left behind, which goes below
  refused[#refused + 1] = command
  if reason == '' then reason = reply.err end
end
try('TIME')
try('TYPE', key)
try('EXISTS', key)
try('HGET', key, 'a')
try('HMGET', key, 'a')
try('HLEN', key)
try('HSCAN', key, 0)
try('ZCARD', key)
try('ZCOUNT', key, 0, 0)
try('ZRANGE', key, 0, 0)
try('ZRANGEBYSCORE', key, 0, 0)
try('ZREVRANGEBYSCORE', key, 0, 0)
try('ZRANGEBYLEX', key, '-', '+')
try('ZLEXCOUNT', key, '-', '+')
try('ZSCORE', key, 'a')
try('ZMSCORE', key, 'a')
try('LLEN', key)
try('LRANGE', key, 0, 0)
local reads = refused
refused, reason = {}, ''
try('HDEL', key, 'a')
try('HSET', key, 'a', 'b')
redis.pcall('HDEL', key, 'a') -- as DEL, which may be refused
try('DEL', key)
try('ZADD', key, 1, 'a')
try('ZREM', key, 'a')
try('ZREMRANGEBYRANK', key, 0, 0)
redis.pcall('DEL', key)
try('RPUSH', key, 'a')
try('LTRIM', key, 1, 0)
try('UNLINK', key)
redis.pcall('DEL', key)
local first = reason
try('PUBLISH', ARGV[1], '')
return {reads, refused, first}
