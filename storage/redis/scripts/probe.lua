-- probe: tries all commands with which the scripts write, and tells which ones the user may not use.
-- It leaves nothing behind. Its first command frees memory, after which a full Redis refuses none.
--
-- KEYS  1 a key that does not exist
-- ARGV  1 a channel
-- Returns  the names of the commands that were refused

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
