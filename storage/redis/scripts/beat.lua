-- beat: writes a runner's heartbeat and removes heartbeats that expired. Its first write frees memory, so
-- that a full Redis accepts it. The field "" has the clock of the last heartbeat of any runner, and since
-- when the removal waits after a jump of the clock (jump.lua), or 0.
--
-- KEYS  1 hash: runner -> time, lane field and seq of its last call, heartbeat in JSON; the runner and " s" ->
--       its schedules in JSON; the runner and " v" -> its vitals; 2 sorted set: runner, by the time until
--       which it counts as alive
-- ARGV  1 runner id, 2 how long it counts as alive (µs), 0 if it leaves, 3 its heartbeat in JSON,
--       4 lane field, 5 seq, 0 for none, 6 when the lane was opened, 7 schedules and 8 vitals, "" to keep those of
--       the heartbeat before
-- Returns  {verdict as in judge.lua, now}; a repeat returns the time of the first try

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function text(n) return string.format('%.0f', n) end
local before = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local seen, lane, seq = string.match(before, '^(%d+) (%x*):(%d+) ')
if ARGV[5] ~= '0' then
  local verdict = judge(tonumber(ARGV[5]), lane == ARGV[4] and sane(seq), ARGV[6], now)
  if verdict ~= 'N' then return {verdict, verdict == 'R' and seen or text(now)} end
end
local last, noted = string.match(redis.call('HGET', KEYS[1], '') or '', '^(%d+) (%d+)$')
local since = waitsince(sane(last) or 0, sane(noted) or 0, now)
redis.call('ZCARD', KEYS[2])
local over = since > 0 and {} or redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now), 'LIMIT', 0, 100)
if ARGV[2] == '0' then over[#over + 1] = ARGV[1] end
local fields = {''} -- written again below
for _, id in ipairs(over) do
  for _, part in ipairs({'', ' s', ' v'}) do fields[#fields + 1] = id .. part end
end
local freed = redis.pcall('HDEL', KEYS[1], unpack(fields))
if type(freed) == 'table' and freed.err then return refusal(freed) end
redis.call('ZREM', KEYS[2], '', unpack(over))
redis.call('HSET', KEYS[1], '', text(now) .. ' ' .. text(since))
if ARGV[2] ~= '0' then
  redis.call('ZADD', KEYS[2], text(now + tonumber(ARGV[2])), ARGV[1])
  redis.call('HSET', KEYS[1], ARGV[1], text(now) .. ' ' .. ARGV[4] .. ':' .. ARGV[5] .. ' ' .. ARGV[3])
  if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], ARGV[1] .. ' s', ARGV[7]) end
  if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], ARGV[1] .. ' v', ARGV[8]) end
end
return {'N', text(now)}
