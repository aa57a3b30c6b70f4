-- probe: tells which of the writes of all scripts the user may not do. It leaves
-- nothing behind.
--
-- KEYS  1 a key that holds nothing
-- ARGV  1 a channel
-- Returns  the names of the commands that were refused. It begins with one that frees,
--       after which a full Redis refuses none.

local key, refused = KEYS[1], {}
local function try(command, ...)
  local reply = redis.pcall(command, ...)
  if type(reply) == 'table' and reply.err then refused[#refused + 1] = command end
end
try('HDEL', key, 'a')
try('HSET', key, 'a', 'b')
try('DEL', key)
try('ZADD', key, 1, 'a')
try('ZREM', key, 'a')
try('ZREMRANGEBYRANK', key, 0, 0)
try('RPUSH', key, 'a')
try('LTRIM', key, 1, 0)
try('UNLINK', key)
try('PUBLISH', ARGV[1], '')
return refused
